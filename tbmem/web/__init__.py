"""The files of the front end: plain ES modules and style sheets, no build step."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
_KINDS = (".js", ".css")


def names() -> frozenset[str]:
    """The files that there are; no other is ever read."""
    found = (path for path in _FOLDER.rglob("*") if path.suffix in _KINDS)
    return frozenset(path.relative_to(_FOLDER).as_posix() for path in found)


def read(name: str) -> bytes:
    """The bytes of a file.

    Raises:
        KeyError: It is none of ``names``.
    """
    if name not in names():
        raise KeyError(name)
    return (_FOLDER / name).read_bytes()
