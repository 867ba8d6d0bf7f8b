"""Opens files of unknown origin, and nothing that is no file: a named pipe would wait for ever."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from typing import Any, BinaryIO

from tbmem.errors import FileFormatError, UsageError

_SPECIAL = {
    **{stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"},
    **{stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"},
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; all files of unknown origin are opened here.

    Anything else is refused: opening a named pipe waits for a writer, and a device may have no end.

    Raises:
        FileFormatError: It is a folder, a named pipe, a socket or a device.
        OSError: It cannot be opened; what reading it raises names the file as well.
    """
    return BufferedReader(RegularFile(path))


def path_text(path: object) -> str:
    """The text of a path that somebody gave; UsageError for what is none."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise UsageError(f"{path!r:.80} is no path: give the path of a file or a folder, as a text")
    return text


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file; errors as in :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


class RegularFile(FileIO):
    """A regular file, unbuffered; errors as in :func:`open_regular`.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path), opener=_descriptor)

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; an error names the file, as that of a failing disk or a network's does not by itself."""
        with self._naming():
            return super().readinto(buffer)

    def readall(self) -> bytes:
        """Read up to the end; errors as in :meth:`readinto`."""
        with self._naming():
            return super().readall()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = error.filename or self.name
            raise


def _descriptor(path: str, flags: int) -> int:
    _refuse_special(path, os.stat(path).st_mode)  # opening a device may have an effect
    # it may have been replaced meanwhile; without waiting a named pipe opens at once
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _refuse_special(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_special(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = _SPECIAL.get(stat.S_IFMT(mode), "no regular file")
        raise FileFormatError(f"{path}: {what}, where a file is expected")
