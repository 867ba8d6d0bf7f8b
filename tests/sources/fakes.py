"""Stand-ins for torch.cuda and torch.cuda.memory: counters that move as torch's do, and a count of every call."""

from __future__ import annotations

import sys
from collections import Counter, deque
from typing import Any, NoReturn

GIB = 1 << 30
MIB = 1 << 20
_SEGMENT = 2 * MIB
_SMALL = 1 * MIB
_FIRST_ADDRESS = 0x7F00_0000_0000

Nested = dict[str, Any]


class Forbidden(AssertionError):
    """tbmem called what a measurement must never call."""


class _Stat:
    """One of torch's counters: current, peak, allocated (in all), freed (in all)."""

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.peak = max(self.peak, self.current)
        if amount > 0:
            self.allocated += amount
        else:
            self.freed -= amount

    def as_dict(self) -> dict[str, int]:
        return dict(vars(self))


class _Pools:
    """A counter over all memory, and over the pools of small and large blocks."""

    def __init__(self) -> None:
        self._pools = {name: _Stat() for name in ("all", "large_pool", "small_pool")}

    @property
    def current(self) -> int:
        return self._pools["all"].current

    def add(self, amount: int, pool: str) -> None:
        self._pools["all"].add(amount)
        self._pools[pool].add(amount)

    def reset_peak(self) -> None:
        for stat in self._pools.values():
            stat.peak = stat.current

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {name: stat.as_dict() for name, stat in self._pools.items()}


class _FakeAllocator:
    """The caching allocator of one device."""

    NAMES = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "allocation")

    def __init__(self) -> None:
        self.stats = {name: _Pools() for name in self.NAMES}
        self.retries = 0
        self.ooms = 0
        self.blocks: dict[int, int] = {}

    def malloc(self, address: int, size: int) -> None:
        pool = _pool(size)
        for name in ("allocated_bytes", "active_bytes"):
            self.stats[name].add(size, pool)
        self.stats["allocation"].add(1, pool)
        missing = self.stats["allocated_bytes"].current - self.stats["reserved_bytes"].current
        if missing > 0:
            self.stats["reserved_bytes"].add(-(-missing // _SEGMENT) * _SEGMENT, pool)
        self._split(pool)
        self.blocks[address] = size

    def free(self, address: int) -> None:
        size = self.blocks.pop(address)
        pool = _pool(size)
        for name in ("allocated_bytes", "active_bytes"):
            self.stats[name].add(-size, pool)
        self.stats["allocation"].add(-1, pool)
        self._split(pool)

    def _split(self, pool: str) -> None:
        """What is cached counts as split off while anything at all is in use."""
        used = self.stats["active_bytes"].current
        split = self.stats["reserved_bytes"].current - used if used else 0
        change = split - self.stats["inactive_split_bytes"].current
        if change:
            self.stats["inactive_split_bytes"].add(change, pool)

    def as_nested_dict(self) -> Nested:
        nested: Nested = {name: pools.as_dict() for name, pools in self.stats.items()}
        return {**nested, "num_alloc_retries": self.retries, "num_ooms": self.ooms}


def _pool(size: int) -> str:
    return "small_pool" if size <= _SMALL else "large_pool"


class FakeMemory:
    """Stands in for ``torch.cuda.memory``: a history in a ring buffer, and snapshots of it.

    ``calls`` holds the arguments of every ``_record_memory_history``; ``failure`` is raised by ``_snapshot``.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self._ring: deque[Nested] | None = None

    @property
    def is_recording(self) -> bool:
        return self._ring is not None

    def _record_memory_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        device: Any = None,
        clear_history: bool = False,
    ) -> None:
        self.calls.append({"enabled": enabled, "context": context, "stacks": stacks, "max_entries": max_entries})
        if enabled is None:
            self._ring = None
        elif self._ring is None or clear_history:
            self._ring = deque(maxlen=max_entries)

    def _snapshot(self, device: Any = None, augment_with_fx_traces: bool = False) -> Nested:
        if self.failure is not None:
            raise self.failure
        return {
            "segments": [],
            "device_traces": [list(self._ring or ())],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
            "external_annotations": [],
        }

    def note(self, action: str, address: int, size: int) -> None:
        """What the allocator does when it allocates or frees."""
        if self._ring is not None:
            frames = [{"filename": "train.py", "line": 7, "name": "step"}]
            entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames}
            self._ring.append(entry)


class FakeCuda:
    """Stands in for the module ``torch.cuda``; ``calls`` counts every call by its name.

    Args:
        devices: How many there are.
        initialized: Whether the process has used CUDA already.
        total: Bytes of each device.
        used_by_others: Bytes that other processes hold on each device.
    """

    def __init__(
        self, *, devices: int = 1, initialized: bool = True, total: int = 80 * GIB, used_by_others: int = 0
    ) -> None:
        self.calls: Counter[str] = Counter()
        self.capturing = False
        self.memory = FakeMemory()
        self.total = total
        self.used_by_others = used_by_others
        self.initialized = initialized
        self.allocators = [_FakeAllocator() for _ in range(devices)]
        self._next_address = _FIRST_ADDRESS
        self._device_of: dict[int, int] = {}

    def malloc(self, size: int, device: int = 0) -> int:
        """Allocate as a tensor does; wakes the device up. Returns the address."""
        self.initialized = True
        address = self._next_address
        self._next_address += -(-size // _SEGMENT) * _SEGMENT
        self._device_of[address] = device
        self.allocators[device].malloc(address, size)
        self.memory.note("alloc", address, size)
        return address

    def free(self, address: int) -> None:
        """Free what ``malloc`` returned."""
        allocator = self.allocators[self._device_of.pop(address)]
        self.memory.note("free_completed", address, allocator.blocks[address])
        allocator.free(address)

    def spike(self, size: int, device: int = 0) -> None:
        """Allocate and free again."""
        self.free(self.malloc(size, device))

    def is_available(self) -> bool:
        self.calls["is_available"] += 1
        return bool(self.allocators)

    def is_initialized(self) -> bool:
        self.calls["is_initialized"] += 1
        return self.initialized

    def device_count(self) -> int:
        self.calls["device_count"] += 1
        return len(self.allocators)

    def is_current_stream_capturing(self) -> bool:
        self.calls["is_current_stream_capturing"] += 1
        return self.capturing

    def memory_stats_as_nested_dict(self, device: int) -> Nested:
        self.calls["memory_stats_as_nested_dict"] += 1
        return self.allocators[device].as_nested_dict() if self.initialized else {}

    def memory_reserved(self, device: int) -> int:
        self.calls["memory_reserved"] += 1
        return self.allocators[device].stats["reserved_bytes"].current

    def reset_peak_memory_stats(self, device: int) -> None:
        self.calls["reset_peak_memory_stats"] += 1
        if not self.initialized:
            raise RuntimeError("Invalid device argument 0: did you call init?")
        for pools in self.allocators[device].stats.values():
            pools.reset_peak()

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """Free and total bytes; as in torch, asking the driver makes a context."""
        self.calls["mem_get_info"] += 1
        self.initialized = True
        reserved = self.allocators[device].stats["reserved_bytes"].current
        return self.total - self.used_by_others - reserved, self.total

    def synchronize(self, device: Any = None) -> NoReturn:
        raise Forbidden("torch.cuda.synchronize")

    def empty_cache(self) -> NoReturn:
        raise Forbidden("torch.cuda.empty_cache")

    def reset_accumulated_memory_stats(self, device: Any = None) -> NoReturn:
        raise Forbidden("torch.cuda.reset_accumulated_memory_stats")

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> NoReturn:
        raise Forbidden("torch.cuda.set_per_process_memory_fraction")
