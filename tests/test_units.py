"""Sizes and durations as text, and back."""

from __future__ import annotations

import pytest

from tbmem.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    format_bytes,
    format_count,
    format_duration,
    format_range,
    format_signed,
    format_speed,
    parse_bytes,
    round_up,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (KIB - 1, "1023 B"),
        (KIB, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (MIB, "1.00 MiB"),
        (45.12 * GIB, "45.12 GiB"),
        (2 * TIB, "2.00 TiB"),
        (345.87 * MIB, "345.87 MiB"),
        (999.99 * MIB, "999.99 MiB"),
        (999.996 * MIB, "1000 MiB"),
        (1016.52 * MIB, "1017 MiB"),
        (-1016.52 * MIB, "-1017 MiB"),
        (1023.4 * MIB, "1023 MiB"),
        (5000 * TIB, "5000 TiB"),
        (-3 * MIB, "-3.00 MiB"),
        (-1, "-1 B"),
    ],
)
def test_bytes_are_written_with_a_binary_unit(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize("count", [MIB - 1, GIB - 1, TIB - 1])
def test_a_size_just_below_a_unit_does_not_round_to_1024(count: int) -> None:
    assert not format_bytes(count).startswith("1024")


@pytest.mark.parametrize(
    ("count", "text"), [(8.2 * MIB, "+8.20 MiB"), (-8.2 * MIB, "-8.20 MiB"), (0, "+0 B"), (-5, "-5 B")]
)
def test_a_change_always_has_its_sign(count: float, text: str) -> None:
    assert format_signed(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (0, 0),
        ("0", 0),
        ("4096 B", 4096),
        ("4 MiB", 4 * MIB),
        ("4mib", 4 * MIB),
        ("  1.5GiB ", 3 * GIB // 2),
        ("0.5 KiB", 512),
        ("2 TiB", 2 * TIB),
        ("10GB", 10_000_000_000),
        ("10 GB", 10_000_000_000),
        ("512MiB", 512 * MIB),
        ("1.5e3 MB", 1_500_000_000),
        ("1E-1 kB", 100),
        ("2 TB", 2_000_000_000_000),
    ],
)
def test_a_size_is_read(text: int | str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MiB",
        "4 Mb/s",
        "4 GBit",
        "4 k",
        "4 G",
        "four",
        "-4 MiB",
        "-1",
        -1,
        "4 MiB 2",
        "4,5 MiB",
        "nan",
        "0x10",
        "4 Mi B",
    ],
)
def test_what_is_no_size_is_refused_with_the_text(text: int | str) -> None:
    # when / then
    with pytest.raises(ValueError, match="not a size") as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("bare", [100, "100", "1e9", 4096])
def test_a_bare_number_is_refused_and_the_units_are_named(bare: int | str) -> None:
    with pytest.raises(ValueError, match="lacks its unit") as caught:
        parse_bytes(bare)
    assert f"'{bare} MiB'" in str(caught.value)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1016.52 * MIB, 1.01 * GIB, "0.99 to 1.01 GiB"),
        (1.006 * GIB, 1.008 * GIB, "1.01 GiB"),
        (0, 2 * MIB, "0.00 to 2.00 MiB"),
        (100, 900, "100 to 900 B"),
        (512, 3 * GIB, "512 B to 3.00 GiB"),
        (5, 5, "5 B"),
    ],
)
def test_a_range_has_one_unit_where_it_can(low: float, high: float, text: str) -> None:
    assert format_range(low, high) == text


@pytest.mark.parametrize("truth", [True, False])
def test_a_truth_value_is_no_size(truth: bool) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(truth)


@pytest.mark.parametrize("count", [0, 1, 1000, KIB, 3 * MIB, 7 * GIB, 80 * GIB, 2 * TIB])
def test_what_was_written_is_read_again(count: int) -> None:
    # given
    text = format_bytes(count)
    # when / then: two decimals of the unit are kept
    assert parse_bytes(text) == pytest.approx(count, rel=0.005)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.84, "0.8 s"),
        (59.4, "59.4 s"),
        (60, "1 min 0 s"),
        (250, "4 min 10 s"),
        (3599.9, "1 h 0 min"),
        (2166.8, "36 min 7 s"),
        (3600, "1 h 0 min"),
        (7800, "2 h 10 min"),
        (360_000, "100 h 0 min"),
    ],
)
def test_durations_are_written_as_a_person_reads_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_second_short_of_a_minute_does_not_read_60_seconds() -> None:
    assert format_duration(59.97) != "60.0 s"


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (999, "999"), (12_345, "12 345"), (1_234_567.4, "1 234 567")])
def test_counts_stand_in_groups_of_three_digits(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("speed", "text"),
    [(0.4678, "0.468 steps/s"), (12.34, "12.3 steps/s"), (12345.6, "12 346 steps/s"), (5, "5 steps/s")],
)
def test_a_speed_has_no_exponent(speed: float, text: str) -> None:
    assert format_speed(speed) == text


@pytest.mark.parametrize(("count", "whole"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
def test_the_next_multiple(count: int, whole: int) -> None:
    assert round_up(count, 512) == whole
