"""Opens recordings of unknown origin: gzip or uncompressed files, and pickles of plain data."""

from __future__ import annotations

import gzip
import io
import os
import pickle  # nosec B403  # its Unpickler refuses every global
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, NoReturn

from tbmem.errors import FileFormatError, UnsafeFileError
from tbmem.model.progress import progress
from tbmem.model.unpacked_size import UnpackedSize
from tbmem.regular_files import RegularFile
from tbmem.sources.events.pickle_budget import BudgetedPickle, CostlyPickleError
from tbmem.sources.events.stray_message import no_stray_message
from tbmem.sources.gc_pause import gc_paused

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


class _FollowedFile(RegularFile):
    """Notes how much of the file was read; raises where reading it was cancelled."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.size = os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any) -> int:
        progress("reading", min(self.tell() / (self.size or 1), 1.0))
        return super().readinto(buffer)


class _CountedGzip(gzip.GzipFile):
    """Counts what is unpacked; raises where it is more than the limit."""

    def __init__(self, file: IO[bytes], size: UnpackedSize) -> None:
        super().__init__(fileobj=file)
        self._size = size

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._size.add(len(data))
        return data


@contextmanager
def open_recording(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its content is gzip.

    Raises:
        FileFormatError: The file is empty, its gzip data is damaged or cut off, or it unpacks to more than the limit
            (``model/unpacked_size.py``).
    """
    with _FollowedFile(path) as raw, io.BufferedReader(raw, _CHUNK) as file:
        magic = file.peek(2)[:2]
        if not magic:
            raise FileFormatError(f"{path}: the file is empty: was the program that wrote it stopped? Write it again")
        size = UnpackedSize(path, raw.size)
        if magic != _GZIP:
            size.add(raw.size)
            yield file
            return
        try:
            with _CountedGzip(file, size) as packed:
                yield packed  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FileFormatError(f"{path}: its gzip data is damaged or cut off: copy or write it again") from error


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every global, without which a pickle cannot call anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafeFileError(
            f"the pickle asks for {module}.{name}, which no memory snapshot needs: nothing was executed"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafeFileError("the pickle refers to an external object, which no memory snapshot needs")


class Unpickled(NamedTuple):
    """What a pickle holds."""

    value: Any
    bytes: int
    """Unpacked bytes of the pickle."""


def load_plain_pickle(path: str | os.PathLike[str]) -> Unpickled:
    """Read a pickle of plain dicts, lists, strings and numbers, with time and memory in proportion to its size.

    Raises:
        UnsafeFileError: The pickle requests a class or function; nothing was run.
        FileFormatError: The file is empty, cut off, damaged, not a pickle, or one that takes more than snapshots do.
    """
    with open_recording(path) as file, gc_paused(), no_stray_message():
        try:
            with BudgetedPickle(file) as stream:
                loaded = _PlainUnpickler(stream).load()  # type: ignore[arg-type]  # views are read as well as bytes
            while file.read(_CHUNK):
                pass  # truncated gzip data is detected at its end only
            return Unpickled(loaded, stream.bytes)
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{path}: {error}") from None
        except CostlyPickleError as error:
            raise FileFormatError(f"{path}: {error}") from None
        except (FileFormatError, OSError, zlib.error):
            raise
        except EOFError as error:
            raise FileFormatError(f"{path}: the file is cut off: copy or write it again") from error
        except Exception as error:
            # a damaged pickle may raise anything
            why = str(error) or type(error).__name__
            raise FileFormatError(f"{path}: not a pickle, or a damaged or cut off one ({why})") from error
