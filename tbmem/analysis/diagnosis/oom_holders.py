"""Largest holders of a device's memory, from live tensors with names and an allocator's blocks with stacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tbmem.analysis.source_lines import SourceLines
from tbmem.model.oom import GRAPH_NODES, SAVED_BY, LiveMemory, OomHolder
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockState

MOST = 10
"""Holders that are reported."""
_LINES = 3
NAMELESS = "no Python variable (autograd graphs, libraries)"
"""Holder of a block without a live tensor and without a recorded stack."""


class _Part(NamedTuple):
    holder: str
    bytes: int
    part: str = ""
    line: str = ""


def holdings_of(live: Iterable[LiveMemory], device: str, lines: Mapping[str, tuple[str, ...]]) -> list[OomHolder]:
    """Holders of one device's live memory, the largest first."""
    parts = [_Part(memory.holder, memory.bytes, memory.part) for memory in _by_address(live, device).values()]
    return _holdings(parts, lines)


def grown_since(before: Iterable[OomHolder], after: Iterable[OomHolder]) -> list[OomHolder]:
    """Holders that hold more than before, with the difference in bytes, the largest first."""
    held = {holder.name: holder.bytes for holder in before}
    grown = [replace(holder, bytes=holder.bytes - held.get(holder.name, 0)) for holder in after]
    return sorted((holder for holder in grown if holder.bytes > 0), key=lambda holder: (-holder.bytes, holder.name))


def seen_in_both(
    before: Iterable[LiveMemory], after: Iterable[LiveMemory]
) -> tuple[list[LiveMemory], list[LiveMemory]]:
    """The tensors of two searches of which one has ended early, without those that only the second one has named.

    Every search sees all tensors, but arrays and strings only as far as it comes: they may be older. A tensor that was
    alive before keeps its holder. What a graph has saved for another counts where its holder has a new tensor itself.
    """
    earlier = {_identity(memory): memory for memory in before if _is_tensor(memory)}
    tensors = [memory for memory in after if _is_tensor(memory)]
    new = [memory for memory in tensors if _identity(memory) not in earlier]
    with_new = {memory.holder for memory in new if not memory.part.startswith(SAVED_BY)}
    kept = [earlier[_identity(memory)] for memory in tensors if _identity(memory) in earlier]
    return list(earlier.values()), [*kept, *(memory for memory in new if memory.holder in with_new)]


def _identity(memory: LiveMemory) -> tuple[str, int, int]:
    return memory.device, memory.address, memory.bytes


def _is_tensor(memory: LiveMemory) -> bool:
    return memory.address > 0  # else an object of Python, or a node of autograd


def holdings_of_blocks(
    timeline: AllocationTimeline, device: int, live: Iterable[LiveMemory], lines: Mapping[str, tuple[str, ...]]
) -> list[OomHolder]:
    """Holders of a snapshot's used blocks, the largest first: of their live tensors, else the allocating lines."""
    # a storage is at the beginning of a block, or in a library's block that it has shared out
    known = _by_address(live, timeline.devices[device].name)
    blocks, source = timeline.blocks, SourceLines(timeline.stacks)
    used = (blocks.state != BlockState.INACTIVE) & (timeline.segments.device[blocks.segment] == device)
    parts = []
    for number in np.flatnonzero(used).tolist():
        memory, line = known.get(int(blocks.address[number])), source.line(int(blocks.stack[number]))
        holder, part = (memory.holder, memory.part) if memory is not None else (line or NAMELESS, "")
        parts.append(_Part(holder, int(blocks.bytes[number]), part, line))
    return _holdings(parts, lines)


def _by_address(live: Iterable[LiveMemory], device: str) -> dict[int, LiveMemory]:
    """A device's live memory; of several at one address the first counts."""
    return {memory.address: memory for memory in reversed(list(live)) if memory.device == device}


def _holdings(parts: Sequence[_Part], lines: Mapping[str, tuple[str, ...]]) -> list[OomHolder]:
    """Parts summed by holder, the largest first."""
    by_holder: defaultdict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        by_holder[part.holder].append(part)
    holdings = [_holding(holder, held, lines.get(holder, ())) for holder, held in by_holder.items()]
    return sorted(holdings, key=lambda holding: (-holding.bytes, holding.name))


def _holding(name: str, parts: Sequence[_Part], known_lines: tuple[str, ...]) -> OomHolder:
    bytes_by_line: Counter[str] = Counter()
    for part in parts:
        if part.line and part.line != name:
            bytes_by_line[part.line] += part.bytes
    largest = max(parts, key=lambda part: part.bytes)
    return OomHolder(
        name=name,
        bytes=sum(part.bytes for part in parts),
        count=max(sum(part.part != GRAPH_NODES for part in parts), 1),
        lines=tuple(line for line, _ in bytes_by_line.most_common(_LINES)) or known_lines[:_LINES],
        largest=largest.part if len(parts) > 1 else "",
    )
