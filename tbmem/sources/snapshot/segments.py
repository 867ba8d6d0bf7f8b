"""Segments and blocks of a snapshot, and the numbers of its memory pools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I64, U64
from tbmem.model.stacks import Numbering
from tbmem.model.timeline_tables import BlockRows, BlockState, SegmentRows
from tbmem.sources.snapshot.plain_values import require_texts
from tbmem.sources.snapshot.stacks import FrameDicts, SnapshotStacks

_Number = TypeVar("_Number", np.int64, np.uint64)
_STATES = {
    "inactive": BlockState.INACTIVE,
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
}
_DEFAULT_POOL = (0, 0)
_MOST_POOLS = 4096
"""A graph has one. The limit is for pairs whose hashes are equal."""


class Pools(Numbering[tuple[int, int]]):
    """Numbers of the memory pools of a snapshot; the default one has 0."""

    def of(self, pool: Sequence[int] | None) -> int:
        """Number of a pool; 0 if the file does not say (before torch 2.1 there was no other)."""
        first, second = pool or _DEFAULT_POOL
        if len(self) > _MOST_POOLS:
            raise ValueError(f"more than {_MOST_POOLS} memory pools")
        return self[int(first), int(second)]


def read_segments(
    segments: list[dict[str, Any]], devices: dict[int, int], pools: Pools, stacks: SnapshotStacks
) -> tuple[SegmentRows, BlockRows]:
    """Segments and blocks at the end of the recording; ``devices`` has each device's row by torch's index."""
    blocks = _blocks(segments, stacks)

    def summed(sizes: I64) -> I64:
        # old layouts do not have all of the sums
        total = np.zeros(len(segments), np.int64)
        np.add.at(total, blocks.segment, sizes)
        return total

    table = SegmentRows.of(
        len(segments),
        device=[devices[int(segment.get("device", 0))] for segment in segments],
        address=_numbers((segment.get("address", 0) for segment in segments), np.uint64),
        bytes=_numbers((segment["total_size"] for segment in segments), np.int64),
        allocated_bytes=summed(np.where(blocks.state == BlockState.ALLOCATED, blocks.bytes, 0)),
        active_bytes=summed(np.where(blocks.state != BlockState.INACTIVE, blocks.bytes, 0)),
        requested_bytes=summed(blocks.requested_bytes),
        stream=_numbers((segment.get("stream", 0) for segment in segments), np.int64),
        kind=[segment.get("segment_type") != "small" for segment in segments],
        pool=[pools.of(segment.get("segment_pool_id")) for segment in segments],
        expandable=[bool(segment.get("is_expandable")) for segment in segments],
        stack=stacks.numbers(segment.get("frames") for segment in segments),
    )
    return table, blocks


def _numbers(values: Iterable[Any], dtype: type[_Number]) -> NDArray[_Number]:
    """A column; unlike ``np.array`` this refuses nested lists without looking for their shape."""
    return np.fromiter(values, dtype)


def _blocks(segments: list[dict[str, Any]], stacks: SnapshotStacks) -> BlockRows:
    blocks = [block for segment in segments for block in segment["blocks"]]
    owner = np.repeat(np.arange(len(segments)), [len(segment["blocks"]) for segment in segments])
    sizes = _numbers((block["size"] for block in blocks), np.int64)
    if (sizes < 0).any():
        raise ValueError("a block of less than nothing")
    require_texts(block["state"] for block in blocks)
    states = [_STATES.get(block["state"], BlockState.PENDING_FREE) for block in blocks]
    return BlockRows.of(
        len(blocks),
        segment=owner,
        address=_addresses(segments, blocks, owner, sizes),
        bytes=sizes,
        requested_bytes=[_requested(block) if state else 0 for block, state in zip(blocks, states, strict=True)],
        state=states,
        stack=stacks.numbers(map(_frames, blocks)),
    )


def _addresses(segments: list[dict[str, Any]], blocks: list[dict[str, Any]], owner: I64, sizes: I64) -> U64:
    """Addresses of the blocks; torch 2.0 writes none, but all blocks in their order."""
    if all("address" in block for block in blocks):
        return _numbers((block["address"] for block in blocks), np.uint64)
    offset = np.cumsum(sizes) - sizes
    first = np.searchsorted(owner, np.arange(len(segments)))
    starts = _numbers((segment.get("address", 0) for segment in segments), np.uint64)
    return np.asarray(starts[owner] + (offset - np.append(offset, 0)[first][owner]).astype(np.uint64))


def _requested(block: dict[str, Any]) -> int:
    """Requested bytes; in torch 2.0 those of the first entry of the history."""
    if "requested_size" in block:
        return int(block["requested_size"])
    history = block.get("history")
    return int(history[0]["real_size"] if history else block["size"])


def _frames(block: dict[str, Any]) -> FrameDicts | None:
    source = block if "frames" in block else (block.get("history") or [{}])[0]
    frames: FrameDicts | None = source.get("frames")
    return frames
