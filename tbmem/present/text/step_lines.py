"""The recorded steps as a table of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.recordings.result import RecordedStep
from tbmem.model.category import Phase, word_of
from tbmem.units import format_bytes

PHASES = (Phase.FORWARD.name, Phase.BACKWARD.name, Phase.OPTIMIZER.name, Phase.OTHER.name)
_COLUMNS = ("step", "duration", *map(word_of, PHASES), "allocated", "freed")


def step_lines(steps: Sequence[RecordedStep], most: int | None = None) -> list[str]:
    """A row per step: duration, by phase, and the bytes that it allocated and freed; at most the last ``most``."""
    shown = steps if most is None else steps[-most:]
    rows = [_COLUMNS, *map(_cells, shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [*lines, *([f"the last {len(shown)} of {len(steps)} steps"] if len(shown) < len(steps) else [])]


def _cells(step: RecordedStep) -> tuple[str, ...]:
    durations = (step.ns, *(getattr(step, f"{name.lower()}_ns") for name in PHASES))
    return (
        str(step.step),
        *map(_milliseconds, durations),
        *map(format_bytes, (step.allocated_bytes, step.freed_bytes)),
    )


def _milliseconds(ns: int) -> str:
    return f"{ns / 1e6:.3f} ms" if ns >= 0 else "-"
