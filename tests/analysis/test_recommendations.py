"""Figures, and what is said of them: each with its number, and never what is already on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tbmem.analysis.recommendations import Figures, recommendations_for
from tbmem.analysis.report import Fragmentation, PeakMoment
from tbmem.model.category import Category

MIB = 1 << 20


def _figures(**given: Any) -> Figures:
    values: dict[str, Any] = {
        "reserved": 1000 * MIB,
        "peak": PeakMoment(bytes=800 * MIB, event=1, ns=1, step=1, phase="FORWARD"),
        "peak_reserved": 1000 * MIB,
        "total": 10_000 * MIB,
        "fragmentation": Fragmentation(),
        "by_kind": {},
        "suspects": (),
        "settings": {},
        "expandable": False,
    }
    return Figures(**{**values, **given})


def _triggers(**given: Any) -> list[str]:
    return [one.trigger for one in recommendations_for(_figures(**given))]


GAPS = Fragmentation(free_in_gaps_bytes=60 * MIB, gaps=3, largest_gap_bytes=40 * MIB)
CACHED = Fragmentation(cached_bytes=300 * MIB, largest_free_block_bytes=90 * MIB)
FAILED = Fragmentation(
    cached_bytes=90 * MIB,
    failing_request_bytes=50 * MIB,
    failing_request_fits_free_sum=True,
    largest_free_block_bytes=20 * MIB,
)


def test_nothing_to_say() -> None:
    assert _triggers() == []


@pytest.mark.parametrize(
    ("given", "trigger"),
    [
        ({"fragmentation": GAPS}, "free_in_gaps_bytes"),
        ({"fragmentation": CACHED}, "cached_bytes"),
        ({"fragmentation": FAILED}, "failing_request_bytes"),
        ({"fragmentation": Fragmentation(rounding_loss_bytes=51 * MIB)}, "rounding_loss_bytes"),
        (
            {"fragmentation": Fragmentation(cached_bytes=99 * MIB + 1, largest_free_block_bytes=101 * MIB)},
            "largest_free_block_bytes",
        ),
        ({"total": 1100 * MIB}, "peak_bytes"),
        ({"by_kind": {Category.ACTIVATION: 500 * MIB}}, "by_category.ACTIVATION"),
        ({"by_kind": {Category.OPTIMIZER_STATE: 300 * MIB}}, "by_category.OPTIMIZER_STATE"),
    ],
)
def test_each_trigger(given: dict[str, Any], trigger: str) -> None:
    [one] = recommendations_for(_figures(**given))

    assert one.trigger == trigger
    assert one.value > one.limit or trigger == "peak_bytes"
    assert any(character.isdigit() for character in one.message)
    assert one.setting


@pytest.mark.parametrize(
    "on",
    [
        {"settings": {"expandable_segments": True}},
        {"settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
        {"expandable": True},
    ],
)
def test_what_is_on_is_not_recommended(on: dict[str, Any]) -> None:
    for fragmentation in (GAPS, FAILED):
        settings = [one.setting for one in recommendations_for(_figures(fragmentation=fragmentation, **on))]
        assert not any("expandable_segments:True" in setting for setting in settings)


def test_a_collection_that_is_on_is_not_recommended() -> None:
    assert _triggers(fragmentation=CACHED, settings={"garbage_collection_threshold": 0.8}) == []


def test_a_collection_that_stands_in_the_variable_is_not_recommended() -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "last_allocator_settings"):
        settings = {name: "max_split_size_mb:64, garbage_collection_threshold : 0.6"}
        assert _triggers(fragmentation=CACHED, settings=settings) == []


def test_whole_pages_of_expandable_segments_are_no_fragmentation() -> None:
    assert _triggers(fragmentation=replace(GAPS, free_in_pages_bytes=20 * MIB), expandable=True) == []
    # nor is there a setting against the rest
    [one] = recommendations_for(_figures(fragmentation=GAPS, expandable=True))
    assert "PYTORCH" not in one.setting


def test_a_small_peak_needs_no_advice_on_its_parts() -> None:
    peak = PeakMoment(bytes=8, event=1, ns=1, step=1, phase="FORWARD")

    assert _triggers(peak=peak, by_kind={Category.ACTIVATION: 8}) == []


def test_temporaries_matter_in_the_optimizer_only() -> None:
    kinds = {Category.TEMPORARY: 400 * MIB}
    peak = PeakMoment(bytes=800 * MIB, event=1, ns=1, step=1, phase="OPTIMIZER")

    assert _triggers(by_kind=kinds) == []
    assert _triggers(by_kind=kinds, peak=peak) == ["by_category.TEMPORARY"]
