"""Words that fit."""

from __future__ import annotations

from tbmem.present.labels import shortened, size_label, unit_for
from tbmem.units import GIB, KIB


def test_the_end_of_a_long_text_is_kept() -> None:
    assert shortened("encoder.layers.11.mlp", 12) == "…yers.11.mlp"
    assert len(shortened("x" * 100)) == 48


def test_a_short_text_stays() -> None:
    assert shortened("train.py:12", 11) == "train.py:12"


def test_sizes_on_an_axis_have_no_idle_digits() -> None:
    assert size_label(64 * KIB) == "64 KiB"
    assert size_label(1536) == "1.5 KiB"


def test_units() -> None:
    assert unit_for(3 * GIB).name == "GiB"
    assert unit_for(100).name == "B"
