"""Opens recordings of unknown origin: packed or plain files, and pickles of plain data."""

from __future__ import annotations

import gzip
import os
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn

from tbmem.errors import FileFormatError, UnsafeFileError
from tbmem.sources.gc_pause import gc_paused

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


@contextmanager
def open_recording(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacking it on the way if it is gzip, whatever it is called.

    Raises:
        FileFormatError: The file is empty, or its gzip data is damaged or cut off.
        OSError: The file cannot be read.
    """
    place = os.fspath(path)
    with open(place, "rb") as file:
        magic = file.peek(2)[:2]
        if not magic:
            raise FileFormatError(f"{place}: the file is empty: was the program that wrote it stopped? Write it again")
        if magic != _GZIP:
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as packed:
                yield packed  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FileFormatError(f"{place}: its gzip data is damaged or cut off: copy or write it again") from error


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every global, and so every call: a pickle can do nothing without one."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafeFileError(f"the pickle asks for {module}.{name}, which no memory snapshot needs: nothing was run")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafeFileError("the pickle asks for an object from outside, which no memory snapshot needs")


def load_plain_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a pickle that holds plain dicts, lists, words and numbers.

    Raises:
        UnsafeFileError: The pickle asks for a class or function, whatever it is; nothing was run.
        FileFormatError: The file is empty, cut off, damaged, or not a pickle.
        OSError: The file cannot be read.
    """
    place = os.fspath(path)
    with open_recording(place) as file, gc_paused():
        try:
            loaded = _PlainUnpickler(file).load()
            while file.read(_CHUNK):
                pass  # only the end of gzip data says whether it was cut off
            return loaded
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{place}: {error}") from None
        except (FileFormatError, OSError, zlib.error):
            raise
        except EOFError as error:
            raise FileFormatError(f"{place}: the file is cut off: copy or write it again") from error
        except Exception as error:
            # a damaged pickle raises whatever its bytes happen to ask for
            why = str(error) or type(error).__name__
            raise FileFormatError(f"{place}: not a pickle, or a damaged or cut off one ({why})") from error
