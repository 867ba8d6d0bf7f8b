"""Sizes and long names go in; words that are short enough for an axis, a key or a table come out."""

from __future__ import annotations

from tbmem.units import format_bytes


def size_label(count: float) -> str:
    """A round size, as an axis writes it: ``'64 KiB'``."""
    number, _, unit = format_bytes(count).partition(" ")
    return f"{float(number):g} {unit}"


def shortened(text: str, most: int = 48) -> str:
    """The end of a text: of a path or a module that is what matters.

    Args:
        text: One line.
        most: Letters that there is room for.
    """
    return text if len(text) <= most else "…" + text[1 - most :]
