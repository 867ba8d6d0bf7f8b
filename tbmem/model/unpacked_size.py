"""Limit of the bytes that are read of one file after decompression, and counting of them."""

from __future__ import annotations

import os

from tbmem.errors import FileFormatError, UsageError
from tbmem.regular_files import open_regular
from tbmem.units import GIB, MIB, format_bytes, parse_bytes

VARIABLE = "TBMEM_MAX_SIZE"
"""Environment variable with the limit, such as ``'20 GiB'``; the processes that read several files inherit it."""
DEFAULT = 16 * GIB
MOST_PACKED = 250
"""Ratio of unpacked to packed bytes up to which a file is read unless a limit was given: torch's traces have 10 to 30,
and gzip's limit is 1032."""
ALWAYS_READ = 16 * MIB
"""Unpacked bytes that are read whatever the ratio."""


def max_size() -> int | None:
    """The limit that was given, in bytes; ``None`` if none was.

    Raises:
        UsageError: The environment variable is not a size.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        size = parse_bytes(text) if text else None
    except ValueError as error:
        raise UsageError(f"{VARIABLE}: {error}") from error
    if size == 0:
        raise UsageError(f"{VARIABLE}: 0 bytes cannot hold a file; write a size such as '20 GiB'")
    return size


class UnpackedSize:
    """Counts the bytes of one file as they are unpacked.

    Args:
        path: The file, for the message.
        packed: Its size on the disk in bytes.
    """

    def __init__(self, path: str | os.PathLike[str], packed: int) -> None:
        self._path = path
        self._given = max_size()
        self._packed = packed
        self.bytes = 0
        self._limit = self._given or min(DEFAULT, max(ALWAYS_READ, MOST_PACKED * packed))

    def add(self, count: int) -> None:
        """Count bytes; FileFormatError if they are more than the limit."""
        self.bytes += count
        if self.bytes > self._limit:
            raise FileFormatError(f"{self._path}: {self._reason()}")

    def _reason(self) -> str:
        size = format_bytes(self._limit)
        what = f"more than {size}" if self._packed > self._limit else f"unpacks to more than {size}"
        if self._given is None and self._limit < DEFAULT:
            what += f", over {MOST_PACKED} times its size, as no recording does"
        return (
            f"{what}: not read; if you trust it, allow more with --max-size, or for TensorBoard and scripts with the"
            f" environment variable {VARIABLE}='20 GiB'"
        )


def read_small(path: str | os.PathLike[str], most: int = 16 * MIB) -> bytes:
    """The content of a file that is small if it is what it should be.

    Raises:
        FileFormatError: It has more than ``most`` bytes.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise FileFormatError(f"{path}: more than {format_bytes(most)}, which no such file of tbmem has: not read")
    return content
