"""What is said first of a comparison."""

from __future__ import annotations

import pytest

from tbmem.analysis.runs.comparison import Comparison, RunFigures, compare_runs
from tbmem.present.text.comparison_headline import headline
from tbmem.present.views.comparison import compare_view
from tbmem.units import MIB


def _compared(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Comparison:
    """Peaks and last levels by device, in MiB."""
    sides = [
        {device: RunFigures(peak * MIB, last * MIB) for device, (peak, last) in side.items()}
        for side in (before, after)
    ]
    return Comparison(before="a", after="b", devices=(), runs=compare_runs(*sides))


@pytest.mark.parametrize(
    ("after", "label", "text"),
    [
        ((100, 50), "SAME", "b against a: no figure changed by 1 % or more."),
        ((164, 50), "GREW", "b against a: run peak +64.0 %, from 100.00 MiB to 164.00 MiB."),
        (
            (105, 95),
            "GREW",
            "b against a: level at the end of the run +90.0 %, from 50.00 MiB to 95.00 MiB; run peak +5.0 %, from"
            " 100.00 MiB to 105.00 MiB.",
        ),
        ((80, 50), "SHRANK", "b against a: run peak -20.0 %, from 100.00 MiB to 80.00 MiB."),
        (
            (110, 20),
            "MIXED",
            "b against a: level at the end of the run -60.0 %, from 50.00 MiB to 20.00 MiB; run peak +10.0 %, from"
            " 100.00 MiB to 110.00 MiB.",
        ),
    ],
)
def test_the_headline_is_the_largest_change(after: tuple[int, int], label: str, text: str) -> None:
    told = headline(_compared({"cpu": (100, 50)}, {"cpu": after}))

    assert (told["label"], told["text"]) == (label, text)


def test_of_several_devices_it_names_the_one() -> None:
    told = headline(_compared({"cuda:0": (100, 50), "cuda:1": (100, 50)}, {"cuda:0": (100, 50), "cuda:1": (150, 50)}))

    assert "run peak of GPU 1 +50.0 %" in told["text"]


def test_a_tiny_base_is_told_by_the_sizes() -> None:
    view = compare_view(_compared({"cpu": (1, 0)}, {"cpu": (400, 0)}), (None, None))

    assert view["headline"] is not None
    assert view["headline"]["text"] == "b against a: run peak from 1.00 MiB to 400.00 MiB."
    assert view["runs"][0]["totals"]["percent_text"] == ["× 400", "0.0 %"]
    assert view["runs"][0]["totals"]["words"] == ["run peak", "level at the end of the run"]
