"""Opens recordings of unknown origin: gzip or uncompressed files, and pickles of plain data."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn

from tbmem.errors import FileFormatError, UnsafeFileError
from tbmem.model.progress import progress
from tbmem.regular_files import regular_file
from tbmem.sources.events.stray_message import no_stray_message
from tbmem.sources.gc_pause import gc_paused

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


class _FollowedFile(io.FileIO):
    """Notes how much of the file was read; raises where reading it was cancelled."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path), opener=regular_file)
        self._size = os.fstat(self.fileno()).st_size or 1

    def readinto(self, buffer: Any) -> int | None:
        progress("reading", min(self.tell() / self._size, 1.0))
        return super().readinto(buffer)


@contextmanager
def open_recording(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its content is gzip.

    Raises:
        FileFormatError: The file is empty, or its gzip data is damaged or cut off.
    """
    with io.BufferedReader(_FollowedFile(path), _CHUNK) as file:
        magic = file.peek(2)[:2]
        if not magic:
            raise FileFormatError(f"{path}: the file is empty: was the program that wrote it stopped? Write it again")
        if magic != _GZIP:
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as packed:
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


def load_plain_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a pickle of plain dicts, lists, strings and numbers.

    Raises:
        UnsafeFileError: The pickle requests a class or function; nothing was run.
        FileFormatError: The file is empty, cut off, damaged, or not a pickle.
    """
    with open_recording(path) as file, gc_paused(), no_stray_message():
        try:
            loaded = _PlainUnpickler(file).load()
            while file.read(_CHUNK):
                pass  # truncated gzip data is detected at its end only
            return loaded
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{path}: {error}") from None
        except (FileFormatError, OSError, zlib.error):
            raise
        except EOFError as error:
            raise FileFormatError(f"{path}: the file is cut off: copy or write it again") from error
        except Exception as error:
            # a damaged pickle may raise anything
            why = str(error) or type(error).__name__
            raise FileFormatError(f"{path}: not a pickle, or a damaged or cut off one ({why})") from error
