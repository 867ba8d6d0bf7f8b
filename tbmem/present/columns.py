"""A header and rows of words go in; lines of text in columns come out, for files and terminals alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of text, two spaces apart, the header underlined."""
    shown = [header, *rows]
    widths = [max(len(row[place]) for row in shown) for place in range(len(header))]
    for number, row in enumerate(shown):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  " + "  ".join("-" * width for width in widths)
