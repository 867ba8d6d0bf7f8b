"""Recordings, or two runs, go in; the tab's Compare view as one file, with all answers inside, comes out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tbmem import __version__
from tbmem.analysis.comparison import Comparison, OddOne, compare_analyses
from tbmem.analysis.report import Analysis
from tbmem.offline.study import Pair
from tbmem.offline.web_reports import recording_item, subject_of, write_page
from tbmem.present.views.index import index_view
from tbmem.present.views.pairs import compare_view
from tbmem.present.views.runs import RunItem
from tbmem.present.views.sides import Side, side_of, sides_view
from tbmem.present.views.texts import NOTHING_TO_COMPARE
from tbmem.present.web_page import key_of, web_page
from tbmem.units import format_moment

_VIEWS = ["compare"]
_ALL_PAIRS = 6
"""Of so many recordings any two can be compared; of more, each with the first, the last and the odd one."""
_CHANGES, _CHANGES_OF_MANY = 100, 30


class Compared(NamedTuple):
    """One of the recordings, as the page needs it."""

    analysis: Analysis
    """Its rows are not needed."""
    side: Side
    link: str = ""
    """Its own page, relative to this one."""


def comparison_html(found: Sequence[Compared], odd: OddOne | None = None, written: str = "") -> str:
    """The page of several recordings."""
    most = _CHANGES if len(found) <= _ALL_PAIRS else _CHANGES_OF_MANY
    answers: dict[str, Any] = {"sides": sides_view([one.side for one in found], odd, [one.link for one in found])}
    for before, after in _pairs(found, odd):
        comparison = compare_analyses(before.analysis, after.analysis)
        answers |= _compared(comparison, (before.side.file, after.side.file), most)
    items = [recording_item(one.side.run, one.side.file, one.analysis.source) for one in found]
    return _page(f"Memory of {len(found)} recordings", items, answers, written)


def write_pair_html(pair: Pair, path: str | os.PathLike[str], now: Callable[[], float] = time.time) -> Path:
    """Write the page of two recordings or runs as one file.

    Raises:
        RunFolderError: The file cannot be written.
    """
    pair = _told_apart(pair)
    sides = [side_of(subject_of(one)) for one in pair.analyses or ()]
    files = [one.file for one in sides] or ["", ""]
    kinds = [one.source for one in pair.analyses or ()] or ["", ""]
    answers: dict[str, Any] = {
        "sides": sides_view(sides),
        **_compared(pair.compared(), (files[0] or None, files[1] or None)),
        **_compared(pair.reversed().compared(), (files[1] or None, files[0] or None)),
    }
    items = [recording_item(*one) for one in zip(pair.names, files, kinds, strict=True)]
    written = format_moment(now())
    return write_page(_page(f"Memory of {pair.names[0]} and {pair.names[1]}", items, answers, written), path)


def _told_apart(pair: Pair) -> Pair:
    """With two names, as the page's lists need them."""
    name, other = pair.names
    if name != other:
        return pair
    other = f"{name} again"
    analyses = pair.analyses and (pair.analyses[0], replace(pair.analyses[1], name=other))
    return pair._replace(names=(name, other), analyses=analyses)


def _pairs(found: Sequence[Compared], odd: OddOne | None) -> Iterator[tuple[Compared, Compared]]:
    ends = {0, len(found) - 1}
    for first, before in enumerate(found):
        for second, after in enumerate(found):
            telling = {first, second} & ends or (odd is not None and odd.name in (before.side.name, after.side.name))
            if first != second and (telling or len(found) <= _ALL_PAIRS):
                yield before, after


def _compared(comparison: Comparison, files: tuple[str | None, str | None], most: int = _CHANGES) -> dict[str, Any]:
    """Answers to what the view asks of a pair."""
    pair = {"before": comparison.before, "after": comparison.after}
    return {
        key_of("compare", pair): compare_view(comparison, files, most=most, empty=NOTHING_TO_COMPARE),
        key_of("sides", pair): "sides",
    }


def _page(title: str, items: Sequence[RunItem], answers: dict[str, Any], written: str) -> str:
    index = index_view(items, version=__version__, source="report", written=written or None)
    return web_page(f"{title} · tbmem", {"views": _VIEWS, "index": index, **answers})
