"""Sizes of blocks and of new segments for a request."""

from __future__ import annotations

from tbmem.analysis.allocator.settings import INTERVALS, AllocatorSettings
from tbmem.units import MIB, round_up

SMALLEST_BLOCK = 512
"""Bytes; the size of every block is a multiple of it."""
SMALL = 1 * MIB
"""Largest request of the small pool; the rest of a large block is split off only above this size."""
SMALL_SEGMENT = 2 * MIB
"""Requests of the small pool share segments of this size."""
_OWN_SEGMENT = 10 * MIB
"""Requests from here on get a segment of their own size."""
_SEGMENT_STEP = 2 * MIB
"""Their sizes are rounded up to a multiple of this."""


def round_size(requested: int, settings: AllocatorSettings) -> int:
    """Bytes of the block for a request."""
    exponent = requested.bit_length() - 1
    interval = exponent - (MIB.bit_length() - 1)
    steps = settings.roundup_power2_divisions[min(max(interval, 0), INTERVALS - 1)]
    if steps > 1 and requested > SMALLEST_BLOCK * steps:
        return round_up(requested, (1 << exponent) // steps)
    return round_up(max(requested, 1), SMALLEST_BLOCK)


def segment_size(size: int, settings: AllocatorSettings) -> int:
    """Bytes of a new segment for a block."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < _OWN_SEGMENT:
        return settings.large_segment_size
    return round_up(size, _SEGMENT_STEP)
