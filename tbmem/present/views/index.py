"""What a log folder holds goes in; the list of its runs, with the colours that all views share, comes out."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.model.category import WORDS, Category
from tbmem.model.finding import FindingKind, Severity
from tbmem.present import colours
from tbmem.present.views.runs import Empty, Index, RunItem

_SEVERITY = {
    FindingKind.LEAK: Severity.CRITICAL,
    FindingKind.OOM: Severity.CRITICAL,
    FindingKind.STABLE: Severity.INFO,
    FindingKind.WARMUP: Severity.INFO,
    FindingKind.SHORT_RUN: Severity.INFO,
    FindingKind.PERIODIC: Severity.INFO,
}


def index_view(
    runs: Sequence[RunItem],
    *,
    version: str,
    source: str,
    written: str | None = None,
    notes: Sequence[str] = (),
    empty: Empty | None = None,
) -> Index:
    """The list of runs.

    Args:
        runs: That which changed last first.
        version: tbmem's.
        source: ``tensorboard`` or ``report``.
        written: When a report was written.
        notes: What is to be said of the folder.
        empty: Why there is no run.
    """
    categories = [category.name for category in Category]
    return {
        "tbmem": version,
        "source": source,
        "written": written,
        "runs": list(runs),
        "colours": {
            "categories": {name: colours.category_colour(name) for name in categories},
            "phases": dict(colours.PHASES),
            "verdicts": {
                kind.value: colours.finding_colour(kind, _SEVERITY.get(kind, Severity.WARNING)) for kind in FindingKind
            },
            "parts": {
                "allocated": colours.ALLOCATED,
                "fragmented": colours.IN_GAPS,
                "cached": colours.IN_SEGMENTS,
                "waiting": colours.PENDING,
                "rounding": colours.ROUNDING,
            },
        },
        "words": dict(WORDS),
        "notes": list(notes),
        "empty": empty,
    }
