"""Analysed recordings go in; what is seen of them side by side comes out (``runs.Sides``): figures, parts, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tbmem.analysis.comparison import OddOne
from tbmem.analysis.thinning import thinned
from tbmem.model.category import word_of
from tbmem.present.colours import category_colour
from tbmem.present.views.runs import Curves, Sides
from tbmem.present.views.subject import Subject

_POINTS = 1000
_CATEGORIES = 14


class Side(NamedTuple):
    """What is shown of one recording: its main device; small enough to be sent from process to process."""

    run: str
    file: str
    name: str
    device: str
    peak: int
    reserved: int | None
    efficiency_percent: float | None
    suspects: int
    categories: Mapping[str, int]
    """Bytes at the peak, the largest first."""
    event: Sequence[int]
    """Of each point of the curve."""
    ms: Sequence[float] | None
    """The same as milliseconds since the recording began, where it has times."""
    bytes: Sequence[int]


def side_of(subject: Subject) -> Side:
    """One of the recordings."""
    main = subject.analysis.main
    curve, clock = subject.curve(main.number), subject.clock(main.number)
    kept = thinned(curve.bytes, _POINTS)
    event = curve.event[kept]
    return Side(
        run=subject.run,
        file=subject.file,
        name=subject.name,
        device=main.name,
        peak=main.peak.bytes,
        reserved=main.reserved_bytes,
        efficiency_percent=main.efficiency_percent,
        suspects=len(main.suspects),
        categories={share.name: share.bytes for share in main.by_category},
        event=event.tolist(),
        ms=np.round(clock.x(event, "time"), 6).tolist() if "time" in clock.axes else None,
        bytes=curve.bytes[kept].tolist(),
    )


def sides_view(sides: Sequence[Side], odd: OddOne | None = None, links: Sequence[str] = ()) -> Sides:
    """All of them.

    Args:
        sides: In the order in which they are shown.
        odd: The one that stands out.
        links: Address of each one's own page, relative; without them their views are in the page that is open.
    """
    names = _categories(sides)
    return {
        "run": [one.run for one in sides],
        "file": [one.file for one in sides],
        "name": [one.name for one in sides],
        "device": [one.device for one in sides],
        "peak": [one.peak for one in sides],
        "reserved": [one.reserved for one in sides],
        "efficiency_percent": [one.efficiency_percent for one in sides],
        "suspects": [one.suspects for one in sides],
        "link": list(links) or [""] * len(sides),
        "odd": [odd is not None and one.name == odd.name for one in sides],
        "message": None if odd is None else odd.message,
        "categories": names,
        "words": [word_of(name) for name in names],
        "colours": [category_colour(name) for name in names],
        "bytes": [[one.categories.get(name, 0) for one in sides] for name in names],
        "others": [sum(size for name, size in one.categories.items() if name not in names) for one in sides],
        "curves": _curves(sides),
    }


def _categories(sides: Sequence[Side]) -> list[str]:
    """Those that are large somewhere, the largest first: a colour means the same in every row."""
    most: dict[str, int] = {}
    for one in sides:
        for name, size in one.categories.items():
            most[name] = max(most.get(name, 0), size)
    return sorted((name for name in most if most[name]), key=lambda name: -most[name])[:_CATEGORIES]


def _curves(sides: Sequence[Side]) -> Curves:
    """Over time where all of them have times, over events else."""
    times = [one.ms for one in sides if one.ms is not None]
    by_time = len(times) == len(sides)
    return {
        "axis": "time" if by_time else "event",
        "x": [list(one) for one in times] if by_time else [[float(at) for at in one.event] for one in sides],
        "bytes": [list(one.bytes) for one in sides],
    }
