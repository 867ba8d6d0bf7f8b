"""Measures a piece of a program, such as a notebook's cell, that may have no training steps."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tbmem.analysis.diagnosis.oom_holders import grown_since, holdings_of, seen_in_both
from tbmem.model.cell_memory import CellLevels, CellMemory
from tbmem.model.oom import OomHolder
from tbmem.model.sample import MemorySample
from tbmem.runtime.process.guard import Guard
from tbmem.sources.counters.devices import AUTO
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.sampler import Counters
from tbmem.sources.retainers.live_memory import LiveHolders, live_memory
from tbmem.sources.retainers.reachability import Namespaces

_NOTICEABLE = 1 << 10
"""Bytes below which it is not reported that something is kept: counters, a seed."""


class CellMeter:
    """Reads all counters and holders at the beginning and at the end.

    Nothing is collected or freed. On the CPU "allocated" is malloc's figure and the peak is the resident memory's.

    Args:
        guard: Runs what may fail.
        named: What has a name beside the program's variables, by the path of the file in which it has it.
    """

    def __init__(self, guard: Guard, named: Namespaces | None = None) -> None:
        self._guard = guard
        self._named = named
        self._counters = Counters(AUTO, HostMemory(workers=False))
        self._held = self._holders()
        self._before = {sample.device: sample for sample in self._counters.sample(0, thorough=True)}
        self._began = time.perf_counter()

    def now(self) -> dict[str, int]:
        """Bytes in use on each device now, on the CPU the resident memory; for another thread."""
        return {name: level for name, (level, _) in self._counters.meanwhile().items()}

    def end(self, error: BaseException | None = None) -> CellMemory:
        """What the piece has used and kept; call it once."""
        seconds = time.perf_counter() - self._began
        try:
            after = self._counters.sample(1, thorough=True)
        finally:
            self._counters.close()
        levels = tuple(_levels(self._before.get(sample.device), sample) for sample in after)
        kept = self._kept({level.device for level in levels} | {"cpu"})
        return CellMemory(
            seconds=seconds, levels=levels, kept=kept, exception=type(error).__name__ if error is not None else None
        )

    def close(self) -> None:
        """Stop without a result."""
        self._counters.close()

    def _kept(self, devices: Iterable[str]) -> tuple[OomHolder, ...]:
        before, after = self._held, self._holders()
        if before is None or after is None:
            return ()
        live = before.live, after.live
        if not (before.complete and after.complete):
            live = seen_in_both(*live)
        found: list[OomHolder] = []
        for device in sorted(devices):
            found += grown_since(*(holdings_of(memory, device, after.lines) for memory in live))
        return tuple(sorted((one for one in found if one.bytes >= _NOTICEABLE), key=lambda one: -one.bytes))

    def _holders(self) -> LiveHolders | None:
        """What variables, models and optimizers hold; ``None`` where the search has failed."""
        return self._guard.run("what the cell keeps", live_memory, None, self._named)


def _levels(before: MemorySample | None, after: MemorySample) -> CellLevels:
    """The levels of a device; of one that was not in use before, nothing was allocated."""
    new_device = 0 if after.device != "cpu" else None
    return CellLevels(
        device=after.device,
        before=before.allocated if before is not None else new_device,
        after=after.allocated,
        peak=after.highest,
        counter=_counter_of(after),
        total=after.device_total,
    )


def _counter_of(sample: MemorySample) -> str:
    if sample.peak is None:
        return "allocated"
    return "peak_allocated" if sample.peak_allocated is not None else "host_peak_rss"
