"""The first sentence on a comparison: the largest change, and the largest the other way."""

from __future__ import annotations

from typing import TypedDict

from tbmem.analysis.runs.comparison import Comparison, Figure
from tbmem.present.lines import device_label

_SAME_PERCENT = 1.0


class Headline(TypedDict):
    """What is said first of a comparison."""

    label: str
    """``GREW``, ``SHRANK`` or ``SAME``."""
    grew: bool
    text: str
    """The largest change of any total, and the largest the other way; one sentence."""


def headline(comparison: Comparison) -> Headline:
    """The largest change of all, and the largest of those that went the other way."""
    figures = [figure for figure in comparison.figures if abs(figure.change.growth) >= _SAME_PERCENT]
    sides = f"{comparison.after} against {comparison.before}"
    if not figures:
        return {"label": "SAME", "grew": False, "text": f"{sides}: no figure changed by 1 % or more."}
    first = figures[0]
    grew = first.change.bytes > 0
    opposite = next((figure for figure in figures if (figure.change.bytes > 0) is not grew), None)
    told = [_told(figure, comparison) for figure in (first, opposite) if figure is not None]
    return {"label": "GREW" if grew else "SHRANK", "grew": grew, "text": f"{sides}: {'; '.join(told)}."}


def _told(figure: Figure, comparison: Comparison) -> str:
    several = len({one.name for one in (*comparison.devices, *comparison.runs)}) > 1
    place = f" of {device_label(figure.device)}" if several else ""
    return f"{figure.words}{place} {figure.change.text}"
