"""The headline of a comparison: the run's largest change, that of its peak, and the largest in the other direction."""

from __future__ import annotations

from typing import Any

from tbmem.analysis.runs.comparison import OF_RUNS, RUN_PEAK, Comparison, Figure
from tbmem.present.lines import device_label

_SAME_PERCENT = 1.0


def headline(comparison: Comparison) -> dict[str, Any]:
    """Label and first sentence of a comparison; changes below 1 % are ignored.

    ``GREW``, ``SHRANK``, ``SAME``, or ``MIXED`` where the first figure is lower and another one has grown: a limit for
    growth applies to each.
    """
    figures = [figure for figure in comparison.figures if abs(figure.change.growth) >= _SAME_PERCENT]
    sides = f"{comparison.after} against {comparison.before}"
    if not figures:
        return {"label": "SAME", "grew": False, "text": f"{sides}: no figure changed by 1 % or more."}
    # what only recorded steps need may be a small part of what the job does
    first = next((figure for figure in figures if figure.change.name in OF_RUNS), figures[0])
    grew = first.change.bytes > 0
    opposite = next((figure for figure in figures if (figure.change.bytes > 0) is not grew), None)
    peaks = [figure for figure in figures if figure.change.name == RUN_PEAK]
    of_run = next((figure for figure in peaks if (figure.change.bytes > 0) is grew), None)
    chosen = dict.fromkeys(figure for figure in (first, of_run, opposite) if figure is not None)
    parts = [_figure_text(figure, comparison) for figure in chosen]
    label = "GREW" if grew else "SHRANK" if opposite is None else "MIXED"
    return {"label": label, "grew": label != "SHRANK", "text": f"{sides}: {'; '.join(parts)}."}


def _figure_text(figure: Figure, comparison: Comparison) -> str:
    several = len({device.name for device in (*comparison.devices, *comparison.runs)}) > 1
    place = f" of {device_label(figure.device)}" if several else ""
    return f"{figure.words}{place} {figure.change.text}"
