"""The part of a timeline that is drawn as bands of single allocations (``recordings.Allocations``)."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.bands import Bands
from tbmem.analysis.layers import Layers
from tbmem.model.columns import I64
from tbmem.present.views.recordings import Allocations
from tbmem.present.views.recordings import Bands as BandColumns
from tbmem.present.views.subject import Stretch, Subject, numbers
from tbmem.present.views.tensors import Words


def bands_part(subject: Subject, part: Stretch, layers: Layers, bands: Bands) -> Allocations:
    """Bands with what a user should know of each.

    Args:
        subject: The recording.
        part: The part of it that is shown.
        layers: Of this part.
        bands: Of these layers.
    """
    rows, words = subject.analysis.timeline.rows, Words(subject)
    labels, label = _labels(words, bands.row)
    lines, line = words.table("line", bands.row)
    modules, module = words.table("module", bands.row)
    begin, free = rows.alloc_event[bands.row], rows.free_event[bands.row]
    freed_here = (free >= 0) & (free <= part.last)
    columns: BandColumns = {
        "row": bands.row.tolist(),
        "bytes": rows.bytes[bands.row].tolist(),
        "layer": bands.layer.tolist(),
        "first": bands.first.tolist(),
        "last": bands.last.tolist(),
        "x0": part.x(np.maximum(begin, part.before)),
        "x1": numbers(np.where(freed_here, part.x(free), part.end)),
        "before": (begin <= part.before).tolist(),
        "alive": (free < 0).tolist(),
        "label": label,
        "line": line,
        "module": module,
    }
    return {
        "labels": labels,
        "lines": lines,
        "modules": modules,
        "bands": columns,
        "unlisted": layers.unlisted.tolist(),
        "shown": len(bands.row),
        "count": bands.found,
        "shown_bytes": int(rows.bytes[bands.row].sum()),
        "count_bytes": bands.bytes,
    }


def _labels(words: Words, which: I64) -> tuple[list[str], list[int]]:
    """Name, else module, else operator of each band, as a table."""
    columns = [words.of(column, which) for column in ("name", "module", "operator")]
    told = [next(filter(None, one), "") for one in zip(*columns, strict=True)]
    table = {word: number for number, word in enumerate(dict.fromkeys(told))}
    return list(table), [table[word] for word in told]
