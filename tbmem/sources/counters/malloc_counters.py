"""Counters of the malloc that this process uses: glibc's, or a preloaded jemalloc or tcmalloc."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

Bytes = tuple[int, int]
"""What malloc has handed out, and what it holds from the system."""
MallocCounters = Callable[[], Bytes]
_PROBES = (64 << 20, 1 << 20)
"""Bytes of the blocks that are allocated, and never touched, to see whether counters count them. Other threads free
memory meanwhile, so half of one must be seen. Those above 32 MiB leave malloc as it is: to free a smaller one raises
glibc's threshold of what is mapped (M_MMAP_THRESHOLD, mallopt(3)). The last is for a process whose address space is
limited (RLIMIT_AS)."""


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2``, mallinfo(3), glibc 2.33 and later."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


@functools.cache
def find_counters() -> MallocCounters | None:
    """The counters that really count what malloc hands out here; ``None`` where there are none (mimalloc, musl).

    Functions of a malloc may be loaded that is not in use (glibc's are, always): a block is allocated to see. That is
    done once in a process, as two readings may take long in its heap.
    """
    try:
        # PyDLL keeps the interpreter's lock: releasing it would take longer than the call
        libc = ctypes.PyDLL(None)
        malloc, free = libc.malloc, libc.free
    except (OSError, AttributeError, TypeError):
        return None
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    for find in (_glibc, _jemalloc, _tcmalloc):
        try:
            counters = find(libc)
        except (AttributeError, LookupError):
            continue
        for size in _PROBES:
            before, _ = counters()
            block = malloc(size)
            after, _ = counters()
            free(block)
            if after - before >= size // 2:
                return counters
    return None


def _glibc(libc: Any) -> MallocCounters:
    mallinfo2 = libc.mallinfo2
    mallinfo2.restype = _Mallinfo2

    def read() -> Bytes:
        info = mallinfo2()
        mapped = info.hblkhd
        return info.uordblks + mapped, info.arena + mapped

    return read


def _jemalloc(libc: Any) -> MallocCounters:
    """``stats.allocated`` and ``stats.resident`` of mallctl(3), which are of the moment when ``epoch`` was written."""
    mallctl, by_mib = libc.mallctl, libc.mallctlbymib
    mibs = [_mib(libc, name) for name in (b"stats.allocated", b"stats.resident")]
    epoch, size = ctypes.c_uint64(1), ctypes.c_size_t(ctypes.sizeof(ctypes.c_size_t))
    size_pointer, epoch_pointer = ctypes.byref(size), ctypes.byref(epoch)
    epoch_size = ctypes.c_size_t(ctypes.sizeof(epoch))

    def number(mib: Any) -> int:
        value = ctypes.c_size_t()  # of each call: two threads read
        by_mib(mib, ctypes.c_size_t(len(mib)), ctypes.byref(value), size_pointer, None, ctypes.c_size_t(0))
        return value.value

    def read() -> Bytes:
        mallctl(b"epoch", None, None, epoch_pointer, epoch_size)
        allocated, resident = map(number, mibs)
        return allocated, resident

    return read


def _mib(libc: Any, name: bytes) -> Any:
    mib, length = (ctypes.c_size_t * 4)(), ctypes.c_size_t(4)
    if libc.mallctlnametomib(name, mib, ctypes.byref(length)):
        raise LookupError(name)  # built without statistics
    return (ctypes.c_size_t * length.value)(*mib[: length.value])


def _tcmalloc(libc: Any) -> MallocCounters:
    """``generic.current_allocated_bytes`` and ``generic.heap_size`` of gperftools, without what was unmapped again."""
    names = (b"generic.current_allocated_bytes", b"generic.heap_size", b"tcmalloc.pageheap_unmapped_bytes")
    get = libc.MallocExtension_GetNumericProperty
    get.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]

    def number(name: bytes) -> int:
        value = ctypes.c_size_t()  # of each call: two threads read
        get(name, ctypes.byref(value))
        return value.value

    def read() -> Bytes:
        allocated, held, unmapped = map(number, names)
        return allocated, held - unmapped

    return read
