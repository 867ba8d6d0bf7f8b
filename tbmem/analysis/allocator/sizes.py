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
_FIRST_INTERVAL = (1 * MIB).bit_length() - 1


def round_size(requested: int, settings: AllocatorSettings) -> int:
    """Bytes of the block for a request."""
    if requested < SMALLEST_BLOCK:
        return SMALLEST_BLOCK
    steps = _divisions(requested, settings)
    if steps > 1 and requested > SMALLEST_BLOCK * steps:
        return _round_to_step(requested, steps)
    return round_up(requested, SMALLEST_BLOCK)


def segment_size(size: int, settings: AllocatorSettings) -> int:
    """Bytes of a new segment for a block."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < _OWN_SEGMENT:
        return settings.large_segment_size
    return round_up(size, _SEGMENT_STEP)


def _round_to_step(size: int, steps: int) -> int:
    """Round up to one of equal steps between the powers of two around a size."""
    if size <= 4 or size & (size - 1) == 0:
        return size
    step = (1 << (size.bit_length() - 1)) // steps
    if step == 0:
        return 1 << size.bit_length()
    return round_up(size, step)


def _divisions(size: int, settings: AllocatorSettings) -> int:
    index = size.bit_length() - 1 - _FIRST_INTERVAL
    return settings.roundup_power2_divisions[min(max(index, 0), INTERVALS - 1)]
