"""Reads what a PNG says of itself."""

from __future__ import annotations

import struct
from pathlib import Path


def size_of_png(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, in dots."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height
