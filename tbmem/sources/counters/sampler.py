"""Samples the memory of every device that this process uses, at each step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tbmem.model.oom import Limit
from tbmem.model.sample import NOTHING, DeviceReading, MemorySample
from tbmem.model.sample_row import FRESH_SECONDS
from tbmem.sources.counters.devices import AUTO, CPU, Device, devices_in_use, open_device
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.malloc import MallocHeap
from tbmem.units import format_bytes

_LONG = 1.5
"""Times as long as steps usually take, from which on a step may have a sample of its own: one that needs more memory
mostly takes longer, and the peak since the last sample is to be that step's."""
_SLOWER = 1.2  # times by which one sample raises that limit: its own long step is not what is usual
_FIFTH = 5  # steps of which the last may as well: over more of them it cannot be told whether memory rose at once
_APART = 2.5
"""Times the least time between two samples that others are apart, at most as long as a figure is fresh on screens."""

_new_sample = tuple.__new__


class Counters:
    """Samples every watched device and the host.

    Args:
        devices: ``'auto'`` (accelerators on which this process holds memory, else the CPU) or names with commas.
        host: The host's figures; closed with this object.
        rank: Global rank to write into each sample.
        reset_peaks: Whether peak counters may be reset at each sample.
        updated: Returns whether an optimizer has stepped since the last call; called once a sample.
        find_devices: Returns the devices in use, for ``'auto'``; tests replace it.
        open_one: Opens a device by name; tests replace it.

    Raises:
        ConfigError: A named device does not exist here.
    """

    def __init__(
        self,
        devices: str,
        host: HostMemory,
        *,
        rank: int = 0,
        reset_peaks: bool = True,
        updated: Callable[[], bool | None] | None = None,
        find_devices: Callable[[], Sequence[str]] | None = None,
        open_one: Callable[[str], Device] | None = None,
    ) -> None:
        self._host = host
        self._rank = rank
        self._updated = updated or (lambda: None)
        self._find_devices = find_devices or devices_in_use
        self._open = open_one or partial(open_device, host=host, reset_peaks=reset_peaks)
        self._auto = devices.strip() == AUTO
        self.resumed_after = 0  # steps before this run, where a training run is resumed
        self.quiet_from = self.quiet_until = -math.inf
        """Unix time between which no counter is due: steps that end there may be skipped."""
        self._passed: list[tuple[float, bool | None]] = []
        self._apart, self._readable_at = max(host.interval, min(_APART * host.interval, FRESH_SECONDS)), -math.inf
        self._ended_at, self._long = -math.inf, math.inf  # Unix time of the last step's end; seconds of a long step
        self._look_at, self._total = 0, host.total
        self._device_due = -math.inf
        self._devices: dict[str, Device] = {}
        self._heap: MallocHeap | None = None  # beside accelerators; the CPU's own figures are malloc's anyway
        self._usage: dict[str, tuple[int, int]] = {}
        self._plan: list[tuple[str, Callable[[], DeviceReading], tuple[int, int] | tuple[None, None]]] = []
        self._rests: Device | None = None
        names = self._find_devices() if self._auto else [n.strip() for n in devices.split(",")]
        try:
            self._watch(names)
            for device in self._devices.values():
                if device.name != CPU:
                    # what was before the run is not its peak; of a device that is used later, all is
                    device.read()
        except BaseException:
            self.close()
            raise

    def sample(self, step: int, *, thorough: bool, profiled: bool = False) -> list[MemorySample]:
        """Read all counters, usage from drivers only if ``thorough``; samples that were passed over come first."""
        samples = self.passed(step - 1) if self._passed else []
        if self._auto and step - self.resumed_after >= self._look_at:
            # a process may touch its accelerator late; looking at steps 1, 2, 4, 8 ... costs next to nothing
            self._look_at = 1 << (step - self.resumed_after).bit_length()
            self._watch(self._find_devices())
        now, host = time.time(), self._host
        if thorough or host.total != self._total:  # what is left, of each sample, is to be of the same limit
            self._total = host.total
            self._read_usage(self._devices)
        if self._heap is not None:
            host.heap = self._heap.read().allocated
        # the next lines run at every step: few calls, and two dozen values by position past the constructor
        figures = host.counters(None if host.read_at <= now < host.read_again_at else host.read(now))
        updated = self._updated()
        for name, read, usage in self._plan:
            values = (step, now, name, self._rank, *read(), *usage, profiled, updated, *figures)
            samples.append(_new_sample(MemorySample, values))
            if host.heap is not None and len(self._plan) > 1:
                host.heap, figures = None, (*figures[:-2], None, figures[-1])
        if self._rests is not None and (rest := self._rests.rest):
            self._long = min(_LONG * (now - self.quiet_from) / len(samples), _SLOWER * self._long)
            if samples[-1].allocated is not None:
                self._device_due = now + rest
            due, later = sorted((self._device_due, host.read_again_at))
            # what is due soon after the other is read with it: a sample by itself costs as much as both
            readable = self._readable_at = later if later - due < host.interval else due
            self.quiet_from, self.quiet_until = now, max(readable, now + self._apart) if readable > now else now
        self._ended_at = now
        return samples

    def pass_over(self, now: float) -> bool:
        """Whether a step needs no sample of its own; it is then made later, together with others."""
        lasted, self._ended_at = now - self._ended_at, now
        if not self.quiet_from <= now < self.quiet_until:
            return False
        if now >= self._readable_at and (lasted > self._long or len(self._passed) + 1 >= _FIFTH):
            return False
        self._passed.append((now, self._updated()))
        return True

    def passed(self, step: int) -> list[MemorySample]:
        """The samples of the steps that were passed over, up to ``step``."""
        figures, passed = self._host.counters(None), self._passed
        self._passed = []
        return [
            _new_sample(MemorySample, (number, at, name, self._rank, *NOTHING, *usage, False, updated, *figures))
            for number, (at, updated) in enumerate(passed, start=step - len(passed) + 1)
            for name, _, usage in self._plan
        ]

    def notes(self) -> list[str]:
        """Notes on the figures of this machine."""
        resident = [device.name for device in self._devices.values() if not getattr(device, "counts_malloc", True)]
        text = "malloc has no counters here, so allocated and reserved are the resident memory"
        notes = [f"{name}: {text}" for name in resident]
        limit = self.limit
        if limit.counts_addresses:
            left = f"{format_bytes(limit.free)} of {format_bytes(limit.total)} of addresses are left"
            share = f"percentages are of what may be resident, {format_bytes(self._host.total)} now"
            notes.append(f"cpu: memory ends at {limit.name}, before the machine's does: {left}; {share}")
        return notes

    def meanwhile(self) -> dict[str, tuple[int, int]]:
        """Bytes in use on each device now, in the middle of a step, and at the last sample; for another thread."""
        return {name: device.meanwhile() for name, device in list(self._devices.items())}

    def heights(self, quickly: bool = False) -> dict[str, tuple[int, int | None]]:
        """Bytes in use, and those allocated, beyond those at the last sample, in the middle of a step.

        For another thread; what is allocated on the CPU is ``None`` where malloc cannot tell cheaply. ``quickly``:
        where it can, that is both figures.
        """
        heights: dict[str, tuple[int, int | None]] = {}
        for name, device in list(self._devices.items()):
            allocated = device.allocated_meanwhile()
            in_malloc = None if allocated is None else allocated[0] - allocated[1]
            if in_malloc is not None and quickly:
                heights[name] = in_malloc, in_malloc
                continue
            now, before = device.meanwhile()
            heights[name] = max(now - before, in_malloc or 0), in_malloc
        return heights

    @property
    def limit(self) -> Limit:
        """The nearest limit of the host's memory, as of the last ``refresh``."""
        return self._host.limit

    def refresh(self) -> Limit:
        """Update the available memory of the host, and return its nearest limit; called in a separate thread."""
        self._host.refresh()
        return self.limit

    def refresh_workers(self) -> None:
        """Update the memory of child processes; called in a separate thread."""
        self._host.refresh_workers()

    def discard_peaks(self, *, devices: bool = True) -> None:
        """Discard the peaks since the last sample, which tbmem itself has caused, by default those of devices too."""
        self._host.peak_rss()
        for device in self._devices.values() if devices else ():
            device.read()

    def close(self) -> None:
        """Close every device and the host."""
        for device in self._devices.values():
            device.close()
        self._host.close()

    def _read_usage(self, names: Iterable[str]) -> None:
        for name in names:
            usage = self._devices[name].read_usage()
            if usage is not None:
                self._usage[name] = usage
        nothing = (None, None)
        self._plan = [(name, each.read, self._usage.get(name, nothing)) for name, each in self._devices.items()]
        self._rests = next(iter(self._devices.values())) if len(self._devices) == 1 else None

    def _watch(self, names: Sequence[str]) -> None:
        accelerators = [name for name in (*self._devices, *names) if name != CPU]
        if self._auto and accelerators:
            # the CPU is watched only as long as there is no accelerator
            self._devices.pop(CPU, None)
            names = accelerators
        new = [name for name in dict.fromkeys(names) if name not in self._devices]
        for name in new:
            self._devices[name] = self._open(name)
        if CPU in self._devices:
            self._heap = self._host.heap = None
        elif self._heap is None:
            self._heap = MallocHeap.of_this_process(self._host.interval)
        self._read_usage(new)
