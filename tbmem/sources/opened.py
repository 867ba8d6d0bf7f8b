"""A path goes in, its bytes as a stream come out, unpacked if they are gzip; trouble is one clear line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tbmem.errors import FileFormatError

_GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
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
