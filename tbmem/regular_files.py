"""Opens files of unknown origin, and nothing that is no file: a named pipe would wait for ever."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from tbmem.errors import FileFormatError

_SPECIAL = {
    **{stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"},
    **{stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"},
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; all files of unknown origin are opened here.

    Anything else is refused: opening a named pipe waits for a writer, and a device may have no end.

    Raises:
        FileFormatError: It is a folder, a named pipe, a socket or a device.
        OSError: It cannot be opened.
    """
    return open(path, "rb", opener=regular_file)


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file; errors as in :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


def regular_file(path: str, flags: int) -> int:
    """Descriptor of a regular file, as an ``opener`` of :func:`open`; errors as in :func:`open_regular`."""
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
