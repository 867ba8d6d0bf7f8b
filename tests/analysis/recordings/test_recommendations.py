"""DeviceFacts, and what is said of them: each with its number, and never what is already on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tbmem.analysis.recordings.recommendations import DeviceFacts, recommendations_for
from tbmem.analysis.recordings.result import Fragmentation, PeakMoment, Share
from tbmem.model.category import Category

MIB = 1 << 20


def _figures(**given: Any) -> DeviceFacts:
    values: dict[str, Any] = {
        "reserved_bytes": 1000 * MIB,
        "peak": PeakMoment(bytes=800 * MIB, event=1, ns=1, step=1, phase="FORWARD"),
        "peak_reserved_bytes": 1000 * MIB,
        "never_used_bytes": 200 * MIB,
        "total_bytes": 10_000 * MIB,
        "fragmentation": Fragmentation(),
        "suspects": (),
        "by_category": (),
        **given,
    }
    others = {
        name: values.pop(name, usual) for name, usual in (("categories", {}), ("settings", {}), ("expandable", False))
    }
    return DeviceFacts(device=SimpleNamespace(**values), by_category=others.pop("categories"), **others)


def _triggers(**given: Any) -> list[str]:
    return [one.trigger for one in recommendations_for(_figures(**given))]


GAPS = Fragmentation(fragmented_bytes=60 * MIB, gaps=3, largest_gap_bytes=40 * MIB)
CACHED = Fragmentation(cached_bytes=300 * MIB, largest_free_block_bytes=90 * MIB)
FAILED = Fragmentation(
    free_bytes=90 * MIB,
    failing_request_bytes=50 * MIB,
    failing_request_fits_free_sum=True,
    largest_free_block_bytes=20 * MIB,
)
FULL = replace(FAILED, free_bytes=20 * MIB, failing_request_fits_free_sum=False)
LARGE = PeakMoment(bytes=1100 * MIB, event=1, ns=1, step=1, phase="FORWARD")


COLLECTS = {"garbage_collection_threshold": 0.8}


def test_nothing_to_say() -> None:
    assert _triggers() == []


@pytest.mark.parametrize(("change", "is_recommended"), [(-60 * MIB, True), (0, False), (12 * MIB, False), (None, True)])
def test_expandable_segments_are_recommended_unless_a_replay_saves_nothing(
    change: int | None, is_recommended: bool
) -> None:
    # given a device with gaps, and what a replay of its recording would save
    facts = _figures(fragmentation=GAPS)._replace(replayed=lambda setting: change)
    # when
    [one] = recommendations_for(facts)
    # then
    assert ("expandable_segments:True" in one.setting) == is_recommended
    assert ("Replayed with" in one.message) == (change is not None)


@pytest.mark.parametrize(
    ("given", "trigger"),
    [
        ({"fragmentation": GAPS}, "fragmented_bytes"),
        ({"fragmentation": CACHED}, "never_used_bytes"),
        ({"fragmentation": FAILED}, "failing_request_bytes"),
        ({"fragmentation": Fragmentation(rounding_loss_bytes=51 * MIB)}, "rounding_loss_bytes"),
        (
            {"fragmentation": replace(CACHED, largest_free_block_bytes=101 * MIB), "settings": COLLECTS},
            "largest_free_block_bytes",
        ),
        ({"total_bytes": 1100 * MIB}, "peak_bytes"),
        ({"categories": {Category.ACTIVATION: 500 * MIB}}, "by_category.ACTIVATION"),
        ({"categories": {Category.OPTIMIZER_STATE: 300 * MIB}}, "by_category.OPTIMIZER_STATE"),
        ({"peak": LARGE, "categories": {Category.PARAMETER: 900 * MIB}}, "by_category.PARAMETER"),
        ({"peak": LARGE, "by_category": (Share(name="KV cache", bytes=400 * MIB, count=2, percent=30),)}, "KV_CACHE"),
        ({"fragmentation": FULL}, "failing_request_bytes"),
    ],
)
def test_each_trigger(given: dict[str, Any], trigger: str) -> None:
    [one] = recommendations_for(_figures(**given))

    assert one.trigger.endswith(trigger)
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
    assert _triggers(fragmentation=CACHED, settings=COLLECTS) == []


def test_a_collection_that_stands_in_the_variable_is_not_recommended() -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "last_allocator_settings"):
        settings = {name: "max_split_size_mb:64, garbage_collection_threshold : 0.6"}
        assert _triggers(fragmentation=CACHED, settings=settings) == []


def test_whole_pages_of_expandable_segments_are_no_fragmentation() -> None:
    cached = replace(GAPS, fragmented_bytes=40 * MIB, cached_in_pages_bytes=20 * MIB)
    assert _triggers(fragmentation=cached, expandable=True) == []
    # nor is there a setting against the rest
    [one] = recommendations_for(_figures(fragmentation=GAPS, expandable=True))
    assert "PYTORCH" not in one.setting


@pytest.mark.parametrize(("never_used", "says"), [(8, True), (49, True), (200, False), (None, False)])
def test_what_fills_the_device_is_not_blamed_on_fragmentation(never_used: int | None, says: bool) -> None:
    unused = None if never_used is None else never_used * MIB
    [one] = recommendations_for(_figures(total_bytes=1100 * MIB, never_used_bytes=unused))

    assert ("fragmentation is not the reason" in one.message) == says


def test_without_room_for_a_request_no_setting_is_recommended() -> None:
    [one] = recommendations_for(_figures(fragmentation=FULL))

    assert one.message == "Out of memory for 50.00 MiB with 20.00 MiB free in all: not by fragmentation."
    assert "PYTORCH" not in one.setting


def test_a_small_peak_needs_no_advice_on_its_parts() -> None:
    peak = PeakMoment(bytes=8, event=1, ns=1, step=1, phase="FORWARD")

    assert _triggers(peak=peak, categories={Category.ACTIVATION: 8}) == []


def test_temporaries_matter_in_the_optimizer_only() -> None:
    kinds = {Category.TEMPORARY: 400 * MIB}
    peak = PeakMoment(bytes=800 * MIB, event=1, ns=1, step=1, phase="OPTIMIZER")

    assert _triggers(categories=kinds) == []
    assert _triggers(categories=kinds, peak=peak) == ["by_category.TEMPORARY"]


@pytest.mark.parametrize("never_used", [20 * MIB, None])
@pytest.mark.parametrize("fragmentation", [GAPS, CACHED, replace(CACHED, largest_free_block_bytes=290 * MIB)])
def test_what_the_peak_has_used_is_no_waste(fragmentation: Fragmentation, never_used: int | None) -> None:
    assert _triggers(fragmentation=fragmentation, never_used_bytes=never_used) == []


def test_categories_have_their_names_for_people() -> None:
    [one] = recommendations_for(_figures(categories={Category.OPTIMIZER_STATE: 300 * MIB}))

    assert one.message == "Optimizer state memory is 300.00 MiB, 38 % of the peak."
