"""Figures with a heading, and axes of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.present.figures.canvas import byte_axis, draw_message, picture
from tbmem.units import GIB, KIB
from tests.present.figures.pngs import size_of_png


def test_a_picture_is_as_large_as_was_asked_and_changes_no_setting(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with picture(tmp_path / "a.png", "A title", "below it", width=5, height=3) as figure:
        draw_message(figure.subplots(), "nothing here")

    # then it has 120 dots per inch
    assert size_of_png(tmp_path / "a.png") == (600, 360)
    assert dict(matplotlib.rcParams) == before
    assert [text.get_text() for text in figure.texts] == ["A title", "below it"]


def test_a_picture_that_fails_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(KeyError), picture(tmp_path / "a.png", "", ""):
        raise KeyError("x")

    assert list(tmp_path.iterdir()) == []


def test_an_axis_has_the_unit_of_its_largest_value() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()

    assert (byte_axis(axes, 3 * GIB), byte_axis(axes, 5 * KIB, "x")) == (GIB, KIB)
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("GiB", "KiB")
