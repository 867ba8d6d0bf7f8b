"""Surviving allocations on a device, read from the blocks and stacks of its memory history."""

from __future__ import annotations

import contextlib
import inspect
import pickle  # nosec B403  # only writes
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tbmem.model.files import SNAPSHOT_PROTOCOL
from tbmem.model.redaction import NOTHING_REDACTED, Redaction
from tbmem.sources.survivors.frame_lines import Frame
from tbmem.sources.survivors.tracker import AllocationSite, Survivor, SurvivorTracker, no_operation, rises
from tbmem.sources.torch_state.memory_history import ProgramsCalls

_MOST_ENTRIES = 50_000  # events that the ring buffer keeps: for the snapshot's reader, none of them is needed here
_RUN_BACKWARD = "_engine_run_backward"


class _Block(NamedTuple):
    size: int
    stack: tuple[tuple[str, int, str], ...]  # file, line, function; empty for what is older than the recording


class HistorySurvivors(SurvivorTracker):
    """Surviving allocations on a device whose allocator keeps a memory history with Python stacks.

    The blocks that are alive when a step ends, without those that were alive before it, were allocated in it. The
    allocator keeps the stack of each, so no event of the history has to be read.

    Args:
        memory: ``torch.cuda.memory`` or ``torch.xpu.memory``, or a stand-in with the same functions.
        history_is_on: Whether history is recorded already, by the program or by tbmem: it is used, and left on.
    """

    def __init__(self, memory: Any, index: int, *, history_is_on: bool = False) -> None:
        super().__init__(time.perf_counter)
        self._memory = memory
        self._index = index
        self._history_is_on = history_is_on
        self._is_light = "include_traces" in inspect.signature(memory.memory_snapshot).parameters
        self._blocks: dict[int, _Block] = {}
        self._requested: list[int] = []
        self._metadata: str | None = None
        self._is_watching = False
        self._is_owner = False
        self._calls = ProgramsCalls(memory, self._hand_over)

    @property
    def is_full(self) -> bool:
        """Whether enough has been seen, or more would cost too much: ``finish`` is due."""
        return not self._is_watching or self._is_spent(self.budget)

    def _begin(self, step: int) -> None:
        if self._history_is_on and not self._is_light:
            self._notes.append("memory history is recorded already, and is too long to be read in each step")
            return
        if not self._history_is_on:
            self._is_owner = True
            # without the light reading a snapshot always holds the events as well: there must be none
            how = {"enabled": "all", "context": "alloc"} if self._is_light else {"enabled": "state", "context": "state"}
            self._memory._record_memory_history(stacks="python", max_entries=_MOST_ENTRIES, **how)
            self._calls.begin()
        self._is_watching = True
        self._label(step)
        self._update()
        self._requested.append(self._read_requested())

    def _end_step(self, step: int) -> Callable[[], object]:
        if self._is_watching:
            new = self._update().items()
            self._sites.step({address: Survivor(block.size, self._site(block)) for address, block in new})
            self._requested.append(self._read_requested())
            self._label(step + 1)
        return no_operation

    def _take_last(self) -> None:
        if self._is_watching:
            self._update()

    def abandon(self) -> None:
        """Stop and report nothing; never raises, may come at any moment and more than once."""
        self._is_watching = False
        with contextlib.suppress(Exception):
            if self._metadata is not None:
                before, self._metadata = self._metadata, None
                self._memory._set_memory_metadata(before)
        self._calls.end()
        with contextlib.suppress(Exception):
            if self._is_owner:
                self._is_owner = False
                self._memory._record_memory_history(enabled=None)

    def _hand_over(self) -> None:
        self._is_owner = self._is_watching = False
        self._notes.append("the program has set the memory history itself meanwhile")

    def snapshot(self, redaction: Redaction = NOTHING_REDACTED) -> bytes:
        """The allocator's state and what history there is as a snapshot's file has it, before ``finish``."""
        with self._counted():
            snapshot = self._memory._snapshot()
            redaction.snapshot(snapshot)
            return pickle.dumps(snapshot, protocol=SNAPSHOT_PROTOCOL)

    def _label(self, step: int) -> None:
        """Write the step's number onto its events, for who reads the snapshot (torch 2.13 and later)."""
        if hasattr(self._memory, "_set_memory_metadata"):
            if self._metadata is None:
                self._metadata = self._memory._get_memory_metadata()
            self._memory._set_memory_metadata(f"step={step}")

    def _update(self) -> dict[int, _Block]:
        """Read every block, take in which were freed; returns the new ones by address."""
        before, self._blocks = self._blocks, self._read_blocks()
        for address, block in before.items():
            if self._blocks.get(address) != block:
                self._sites.free(address)
        return {address: block for address, block in self._blocks.items() if before.get(address) != block}

    def _read_blocks(self) -> dict[int, _Block]:
        options = {"include_traces": False} if self._is_light else {}
        blocks = {}
        for segment in self._memory.memory_snapshot(**options):
            address = segment["address"]
            for block in segment["blocks"] if segment["device"] == self._index else ():
                if block["state"] == "active_allocated":
                    frames = block.get("frames", ())
                    stack = tuple((frame["filename"], frame["line"], frame["name"]) for frame in frames)
                    blocks[address] = _Block(block.get("requested_size", block["size"]), stack)
                address += block["size"]
        return blocks

    def _site(self, block: _Block) -> AllocationSite:
        files = [(self._lines.file(name), line, function) for name, line, function in block.stack]
        in_backward = not block.stack or any(function.endswith(_RUN_BACKWARD) for _, _, function in block.stack)
        return AllocationSite(tuple(Frame(*entry) for entry in files if entry[0]), "", in_backward)

    def _read_requested(self) -> int:
        """Bytes that were ever requested: a block may be up to 1 MiB larger, now more, now less."""
        stats = self._memory.memory_stats_as_nested_dict(self._index)
        return int(stats["requested_bytes"]["all"]["allocated"])

    def _sizes_grow(self) -> float:
        """Whether steps allocate more and more, the one site that grows most left out: nothing says more here."""
        steps = [after - before for before, after in zip(self._requested, self._requested[1:], strict=False)]
        rest = [total - largest for total, largest in zip(steps, self._sites.largest_growing(), strict=True)]
        return float(rises(rest))
