"""What PYTORCH_ALLOC_CONF says is read as torch reads it."""

from __future__ import annotations

import pytest

from tbmem.analysis.allocator.settings import (
    UNLIMITED,
    AllocatorSettings,
    describe,
    idle,
    parse_settings,
    round_size,
    segment_size,
    settings_of_snapshot,
)
from tbmem.errors import ConfigError
from tbmem.units import GIB, MIB


def test_nothing_said_means_torchs_defaults() -> None:
    settings = parse_settings("")

    assert settings == AllocatorSettings()
    assert settings.max_split_size == UNLIMITED
    assert describe(settings) == ""


def test_all_keys_of_the_device_are_read_and_keys_of_host_memory_passed_over() -> None:
    text = (
        "max_split_size_mb:128, max_non_split_rounding_mb:64,garbage_collection_threshold:0.8,"
        "expandable_segments:True,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:False,"
        "pinned_use_background_threads:True,backend:native"
    )

    settings = parse_settings(text)

    assert settings.max_split_size == 128 * MIB
    assert settings.max_non_split_rounding == 64 * MIB
    assert settings.garbage_collection_threshold == 0.8
    assert settings.expandable_segments
    assert settings.per_process_memory_fraction == 0.5


def test_a_larger_large_segment_raises_what_may_be_rounded_up() -> None:
    settings = parse_settings("max_split_size_mb:64,large_segment_size_mb:32")

    assert settings.large_segment_size == settings.max_non_split_rounding == 32 * MIB
    assert describe(settings) == "large_segment_size_mb:32,max_split_size_mb:64"


def test_divisions_by_interval_reach_down_from_the_first_and_up_from_the_sign() -> None:
    divisions = parse_settings("roundup_power2_divisions:[4:2,16:8,>:1]").roundup_power2_divisions

    assert divisions[:6] == (2, 2, 2, 0, 8, 1)
    assert set(divisions[6:]) == {1}
    assert parse_settings("roundup_power2_divisions:4").roundup_power2_divisions == (4,) * 16


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max_split_size:5", "did you mean max_split_size_mb"),
        ("max_split_size_mb:5", "must be 20 or more"),
        ("max_split_size_mb:x", "whole number"),
        ("large_segment_size_mb:10", "must be 11 or more"),
        ("expandable_segments:true", "True or False"),
        ("garbage_collection_threshold:1.0", "between 0 and 1"),
        ("per_process_memory_fraction:much", "between 0 and 1"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[5:2]", "power of two"),
        ("backend:cudaMallocAsync", "only native is simulated"),
        ("expandable_segments", "cannot read"),
        ("zzz:1", "zzz is none of them; there are backend"),
    ],
)
def test_what_torch_refuses_is_one_clear_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_settings(text)


def test_a_snapshots_own_settings() -> None:
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
        "max_split_size": 64 * MIB,
        "expandable_segments": True,
        "garbage_collection_threshold": 0.0,
        "roundup_power2_divisions": {"1": 0, "2": 4},
    }

    settings = settings_of_snapshot(recorded)

    assert settings.max_split_size == 64 * MIB
    assert settings.expandable_segments
    assert settings.roundup_power2_divisions[:3] == (0, 4, 0)
    assert settings_of_snapshot(None) == AllocatorSettings()


def test_what_another_version_of_torch_took_does_not_stop_a_recording_from_being_read() -> None:
    recorded = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,of_the_future:1,large_segment_size_mb:2"}

    assert settings_of_snapshot(recorded).max_split_size == 128 * MIB
    assert settings_of_snapshot({"PYTORCH_ALLOC_CONF": "no settings"}) == AllocatorSettings()


@pytest.mark.parametrize(
    "recorded",
    [
        ["a list"],
        {"max_split_size": None, "expandable_segments": None, "PYTORCH_CUDA_ALLOC_CONF": None},
        {"max_split_size": "x", "roundup_power2_divisions": {"one": 2}, "garbage_collection_threshold": "much"},
        {"roundup_power2_divisions": 3},
    ],
)
def test_settings_of_a_recording_that_are_not_as_torch_writes_them_are_passed_over(recorded: object) -> None:
    assert settings_of_snapshot(recorded) == AllocatorSettings()


@pytest.mark.parametrize(
    "text",
    [
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64",
        "export PYTORCH_ALLOC_CONF='max_split_size_mb:64'",
        '"max_split_size_mb: 64"',
    ],
)
def test_a_line_as_it_stands_in_a_script_is_read(text: str) -> None:
    assert parse_settings(text) == AllocatorSettings(max_split_size=64 * MIB)


def test_empty_entries_are_passed_over_as_torch_does() -> None:
    assert parse_settings(",expandable_segments:True,,max_split_size_mb:128,") == AllocatorSettings(
        expandable_segments=True, max_split_size=128 * MIB
    )


@pytest.mark.parametrize(
    "text", ["4", "[256:1,512:2,1024:4,>:8]", "[256:8]", "[1:0,>:8]", "[1:2,2:0,4:4]", "[16384:2,32768:4]"]
)
def test_divisions_are_described_in_few_words_that_mean_the_same(text: str) -> None:
    settings = parse_settings(f"roundup_power2_divisions:{text}")

    assert parse_settings(describe(settings)) == settings
    assert len(describe(settings)) < 60


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("garbage_collection_threshold:0.8", "without a per_process_memory_fraction below 1"),
        ("max_non_split_rounding_mb:40", "without max_split_size_mb"),
        ("pinned_use_background_threads:True", "does not change where the device's memory comes from"),
        ("garbage_collection_threshold:0.8,per_process_memory_fraction:0.5", ""),
        ("max_split_size_mb:40,max_non_split_rounding_mb:40", ""),
    ],
)
def test_settings_that_change_nothing_are_told(text: str, words: str) -> None:
    assert words in " ".join(idle(text))
    assert bool(words) == bool(list(idle(text)))


@pytest.mark.parametrize(
    ("requested", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (GIB, GIB, GIB),
    ],
)
def test_blocks_are_multiples_of_512_and_segments_come_in_three_sizes(requested: int, block: int, segment: int) -> None:
    settings = parse_settings("")

    assert round_size(requested, settings) == block
    assert segment_size(block, settings) == segment


def test_roundup_power2_divisions_rounds_to_quarters() -> None:
    settings = parse_settings("roundup_power2_divisions:4")

    assert round_size(1200, settings) == 1536
    assert round_size(1200 * MIB, settings) == 1280 * MIB
    assert round_size(1024 * MIB, settings) == 1024 * MIB
    # sizes up to 512 bytes a step are rounded as ever
    assert round_size(1025, parse_settings("roundup_power2_divisions:8")) == 1536
