"""The memory of a notebook's cell as lines of text."""

from __future__ import annotations

from tbmem.model.cell_memory import CellLevels, CellMemory
from tbmem.model.oom import OomHolder
from tbmem.present.lines import SEPARATOR, device_label, peak_word
from tbmem.units import format_bytes, format_duration, format_share, format_signed

_MOST_KEPT = 5
_LOWER = 0.98  # times the cell's peak below which a run's peak is another one
_NOTICEABLE, _NOTICEABLE_SHARE = 1 << 20, 0.1
"""Bytes, and share of a cell's growth, from which on a line says that nothing known holds them."""


def cell_lines(cell: CellMemory) -> list[str]:
    """The cell for the console: duration, levels, what it has kept."""
    return [cell_heading(cell), *(levels_line(levels) for levels in cell.levels), *kept_lines(cell)]


def cell_heading(cell: CellMemory) -> str:
    """``'cell in 3.2 s'``, and the exception that ended it."""
    ended = f", ended by {cell.exception}" if cell.exception else ""
    return f"cell in {format_duration(cell.seconds)}{ended}"


def levels_line(levels: CellLevels) -> str:
    """``'GPU 0: allocated 1.00 GiB before, 1.50 GiB after (+512.00 MiB) · peak in the cell 3.20 GiB'``."""
    parts = []
    known = [(value, word) for value, word in ((levels.before, "before"), (levels.after, "after")) if value is not None]
    if known:
        change = f" ({format_signed(levels.change)})" if levels.change is not None else ""
        parts.append(f"allocated {', '.join(f'{format_bytes(value)} {word}' for value, word in known)}{change}")
    if levels.peak is not None:
        share = f" ({format_share(levels.peak, levels.total)})" if levels.total else ""
        run, peak = levels.run_peak, levels.peak
        outside = "" if run is None or run >= _LOWER * peak else f", {format_bytes(run)} in the steps of its run"
        parts.append(f"{peak_word(levels.counter)} in the cell {format_bytes(peak)}{share}{outside}")
    return f"{device_label(levels.device)}: {SEPARATOR.join(parts) or 'no counters'}"


def kept_lines(cell: CellMemory) -> list[str]:
    """What holds more memory after the cell than before."""
    lines = [f"kept: {kept_text(holder)}" for holder in cell.kept[:_MOST_KEPT]]
    rest = cell.kept[_MOST_KEPT:]
    if rest:
        lines.append(f"kept: {len(rest)} more, {format_bytes(sum(holder.bytes for holder in rest))}")
    grown = sum(levels.change or 0 for levels in cell.levels)
    unnamed = grown - sum(holder.bytes for holder in cell.kept)
    if unnamed >= max(_NOTICEABLE, _NOTICEABLE_SHARE * grown):
        lines.append(
            f"kept: {format_bytes(unnamed)} by no variable, model or optimizer that could be seen: autograd's nodes of"
            " kept tensors, libraries, and caches of theirs"
        )
    return lines


def kept_text(holder: OomHolder) -> str:
    """``"+24.00 MiB by list 'outputs' at train.py:5"``."""
    return SEPARATOR.join((f"{format_signed(holder.bytes)} by {holder.name}", *holder.lines[:1]))
