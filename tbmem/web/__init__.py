"""The files of the front end: plain ES modules and style sheets, no build step."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def files(suffix: str) -> dict[str, str]:
    """Texts of the files with a suffix, ``'.js'`` or ``'.css'``, by path relative to this folder, sorted."""
    return {
        path.relative_to(_FOLDER).as_posix(): path.read_text("utf-8") for path in sorted(_FOLDER.rglob(f"*{suffix}"))
    }
