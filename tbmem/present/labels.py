"""Short texts for axes, legends and tables: units, sizes, shortened names, columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tbmem.units import GIB, KIB, MIB, TIB, format_bytes


class Unit(NamedTuple):
    """A unit for a whole axis."""

    name: str
    """``'GiB'``."""
    bytes: int


_UNITS = (Unit("TiB", TIB), Unit("GiB", GIB), Unit("MiB", MIB), Unit("KiB", KIB))


def unit_for(largest: int | float) -> Unit:
    """The unit in which a number is at least 1."""
    return next((unit for unit in _UNITS if abs(largest) >= unit.bytes), Unit("B", 1))


def size_label(count: float) -> str:
    """A round size, as an axis writes it: ``'64 KiB'``."""
    number, _, unit = format_bytes(count).partition(" ")
    return f"{float(number):g} {unit}"


def shortened(text: str, most: int = 48) -> str:
    """The last ``most`` characters of a path or module name."""
    return text if len(text) <= most else "…" + text[1 - most :]


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of text, two spaces apart, the header underlined."""
    shown = [header, *rows]
    widths = [max(len(row[index]) for row in shown) for index in range(len(header))]
    for number, row in enumerate(shown):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  " + "  ".join("-" * width for width in widths)


def plain_markdown(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    for sign in ("\\", "_", "*", "|", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text
