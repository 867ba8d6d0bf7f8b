"""The list of runs of a log folder, with the colours that all views share."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.model.category import WORDS, Category
from tbmem.present.palette import category_colour
from tbmem.present.views.run_schema import Empty, Index, RunItem


def index_view(
    runs: Sequence[RunItem],
    *,
    version: str,
    source: str,
    written: str | None = None,
    notes: Sequence[str] = (),
    empty: Empty | None = None,
) -> Index:
    """The list of runs."""
    return {
        "tbmem": version,
        "source": source,
        "written": written,
        "runs": list(runs),
        "colours": {"categories": {category.name: category_colour(category.name) for category in Category}},
        "words": dict(WORDS),
        "notes": list(notes),
        "empty": empty,
    }
