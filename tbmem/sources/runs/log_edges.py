"""Reads the last header and the last lines of a live log, without the rows between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from tbmem.errors import FileFormatError
from tbmem.model.monitor_log import LONGEST_LINE, MonitorLog, parse_line
from tbmem.regular_files import open_regular

_TAIL = 64 << 10
_LAST_LINES = 8
_HEAD = 1024
_HEADER = b'{"type":"header"'
_BLOCK = 1 << 20


class LogEdges:
    """The last header and the last lines of a log that may still be written.

    Args:
        path: The log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._searched = 0  # bytes in which the last header was searched
        self._header = self._head = b""

    def read(self) -> MonitorLog:
        """The header and the last lines; only what was written since the last call is searched for a header."""
        try:
            with open_regular(self.path) as file:
                head, size = head_of(file), file.seek(0, os.SEEK_END)
                if size < self._searched or not head.startswith(self._head):
                    self._searched, self._header = 0, b""  # the file was replaced
                self._head = head
                begin = _last_header(file, self._searched, size)
                if begin is not None or not self._header:
                    file.seek(begin or 0)
                    self._header = file.readline(LONGEST_LINE)
                self._searched = max(size - len(_HEADER), 0)
        except (OSError, FileFormatError):
            return MonitorLog()
        log = last_lines(self.path)
        log.headers = _parsed([self._header]).headers
        return log


def head_of(file: BinaryIO) -> bytes:
    """The first bytes, in which a log that has replaced another one differs: it began at another time."""
    file.seek(0)
    return file.read(_HEAD)


def last_lines(path: Path) -> MonitorLog:
    """The last lines of a log; an incomplete first one is ignored."""
    try:
        with open_regular(path) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            return _parsed(file.read().rstrip(b"\n").split(b"\n")[-_LAST_LINES:])
    except (OSError, FileFormatError):
        return MonitorLog()


def _last_header(file: BinaryIO, begin: int, end: int) -> int | None:
    """Where the last header between two positions begins, read from the end in blocks."""
    while end > begin:
        start = max(end - _BLOCK, begin)
        file.seek(start)
        found = file.read(end - start + len(_HEADER) - 1).rfind(_HEADER)
        if found >= 0:
            return start + found
        end = start
    return None


def _parsed(lines: Sequence[bytes]) -> MonitorLog:
    log = MonitorLog()
    for line in lines:
        parse_line(line, log)
    return log
