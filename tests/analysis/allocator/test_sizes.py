"""Sizes of blocks and segments."""

from __future__ import annotations

import pytest

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.allocator.sizes import round_size, segment_size
from tbmem.units import GIB, MIB


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
