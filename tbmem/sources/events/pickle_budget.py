"""A pickle as a file for ``pickle.Unpickler``, with time and memory in proportion to its bytes.

A few bytes can make the unpickler take gigabytes (an index of its memo) or hours (keys whose hashes are equal, or take
long to compute). Small pickles are therefore looked through before they are loaded; for large ones, which that would
make slow, the limits below hold between two pieces.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, Any

from tbmem.errors import FileFormatError
from tbmem.sources.events.pickle_opcodes import check_opcodes, may_collide
from tbmem.units import MIB, format_bytes

try:
    import resource
except ImportError:  # Windows: memory is not limited
    resource = None  # type: ignore[assignment]

_CHECKED = 64 << 10
"""Bytes of the largest pickle that is looked through before: 3 ms."""
_PIECE = 72 << 10
"""Bytes that are handed over at once: a frame of pickle.dump and its header."""
_LARGEST_PIECE = 256 << 10
"""Bytes of the largest frame or string: pickle.dump's frames have 64 to 128 KiB."""
_CHUNK = 1 << 20
_SECONDS, _SECONDS_PER_BYTE = 0.25, 1e-6
"""Processor time: snapshots of torch take 5 to 50 ns a byte."""
_SECONDS_PER_PAIR = 7e-9
"""Processor time of comparing two keys with equal hashes."""
_MEMORY, _MEMORY_PER_BYTE = 128 * MIB, 16
"""Bytes of memory: snapshots of torch take 5 to 10 a byte, small ones 15."""
_one_at_a_time = threading.Lock()
"""The limit of memory is the process's."""


class CostlyPickleError(FileFormatError):
    """A pickle takes more time or memory than any snapshot of its size."""


class BudgetedPickle:
    """The file of an unpickler, for one ``with`` block.

    Args:
        file: The unpacked pickle.

    Raises:
        CostlyPickleError: In the block or at its begin, as the class says.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._data, self._at = memoryview(b""), 0
        self._before = self._large_numbers = 0
        self._began = 0.0
        self._memory = _MemoryLimit()

    @property
    def bytes(self) -> int:
        """Bytes that were handed over."""
        return self._before + self._at

    def __enter__(self) -> BudgetedPickle:
        self._fill(_CHECKED + 1)
        if len(self._data) <= _CHECKED and (problem := check_opcodes(bytes(self._data))):
            raise CostlyPickleError(f"the pickle {problem}, which no memory snapshot has: nothing was loaded")
        self._memory.begin()
        self._began = time.thread_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._memory.end()
        if isinstance(error, MemoryError):
            limit = format_bytes(_MEMORY + _MEMORY_PER_BYTE * self.bytes)
            raise CostlyPickleError(
                f"{format_bytes(self.bytes)} of this pickle take more than {limit} of memory, as in no memory snapshot,"
                " or the machine has no more: copy or write it again"
            ) from None

    def peek(self, count: int) -> memoryview:
        """The next bytes, without moving on."""
        del count
        self._fill(_PIECE)
        self._check()
        return self._data[self._at : self._at + _PIECE]

    def read(self, count: int) -> memoryview:
        """The next bytes."""
        if count > _LARGEST_PIECE:
            raise CostlyPickleError(
                f"after {self.bytes} bytes the pickle holds a frame or string of {format_bytes(count)}, as no memory"
                " snapshot does"
            )
        self._fill(count)
        piece = self._data[self._at : self._at + count]
        self._at += len(piece)
        self._check()
        return piece

    def readinto(self, buffer: Any) -> int:
        """The next bytes, into a buffer."""
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def readline(self) -> memoryview:
        """The bytes up to a line break, or as many as there may be."""
        self._fill(_PIECE)
        line = bytes(self._data[self._at : self._at + _PIECE])
        return self.read(line.find(b"\n") + 1 or _PIECE)

    def _fill(self, count: int) -> None:
        """Read until so many bytes are there, or the file ends."""
        while len(self._data) - self._at < count:
            more = self._file.read(_CHUNK)
            if not more:
                break
            self._large_numbers += may_collide(more)
            self._before += self._at
            self._data, self._at = memoryview(b"".join((self._data[self._at :], more))), 0

    def _check(self) -> None:
        if self._large_numbers**2 * _SECONDS_PER_PAIR > _SECONDS + _SECONDS_PER_BYTE * (self._before + len(self._data)):
            raise CostlyPickleError(
                f"the pickle has up to {self._large_numbers} numbers of more than 72 bits, which no memory snapshot has"
            )
        self._memory.allow(_MEMORY_PER_BYTE * (self.bytes + _PIECE))
        spent = time.thread_time() - self._began
        if spent > _SECONDS + _SECONDS_PER_BYTE * self.bytes:
            raise CostlyPickleError(
                f"the first {format_bytes(self.bytes)} of this pickle took {spent:.1f} s, as in no memory snapshot:"
                " given up"
            )


class _MemoryLimit:
    """Limits the growth of the process (RLIMIT_DATA, Linux): an allocation beyond it is a MemoryError.

    A process that has torch may be training a model: its other threads are not to run out of memory, and what is read
    there is its own.
    """

    def __init__(self) -> None:
        self._limits: tuple[int, int] | None = None
        self._base = self._allowed = 0

    def begin(self) -> None:
        """Count from now on; other threads that begin wait for the end."""
        _one_at_a_time.acquire()
        if "torch" in sys.modules:
            return
        with suppress(OSError, AttributeError):
            with open("/proc/self/statm", encoding="ascii") as file:
                self._base = int(file.read().split()[5]) * resource.getpagesize()
            self._limits = resource.getrlimit(resource.RLIMIT_DATA)
        self.allow(0)

    def allow(self, count: int) -> None:
        """Let the process have so many bytes more than the least; done once for each megabyte."""
        if self._limits is None or 0 < count < self._allowed:
            return
        self._allowed = count + _CHUNK
        soft, hard = self._limits
        wanted = self._base + _MEMORY + self._allowed
        allowed = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *allowed]), hard))

    def end(self) -> None:
        """Take the limit away."""
        try:
            if self._limits is not None:
                resource.setrlimit(resource.RLIMIT_DATA, self._limits)
        finally:
            _one_at_a_time.release()
