"""Figures of an estimate as they are read from its JSON file."""

from __future__ import annotations

from typing import Any, TypedDict, cast

import msgspec

from tbmem.errors import FileFormatError
from tbmem.model.json_values import Count, Number, read_json

_Range = tuple[Count, Count]


class _Job(TypedDict, total=False):
    model: str
    batch: Count | None
    checkpoint: bool


class _Alternative(TypedDict, total=False):
    change: str
    reserved: Count
    fit: str


class _Variant(TypedDict, total=False):
    batch: Count | None
    checkpoint: bool
    settings: str
    peak: Count
    range: _Range | None
    reserved_range: _Range | None
    peak_reserved: Count | None
    fit: str
    sentence: str
    by_category: dict[str, Count]
    steps: dict[str, list[dict[str, Any]]]


class EstimateFigures(TypedDict, total=False):
    """What is read of the figures; the file has more keys."""

    job: _Job
    gpu: str | None
    settings: str
    capacity: Count | None
    peak_allocated: Count | None
    peak_reserved: Count | None
    allocated_range: _Range | None
    reserved_range: _Range | None
    fit: str | None
    sentence: str
    outside: dict[str, Number]
    alternatives: list[_Alternative]
    variants: list[_Variant]
    notes: list[str]
    executed: str
    dtype: str | None
    architecture: str


def read_estimate(data: bytes) -> EstimateFigures:
    """The figures in a file, of which the keys that are read have the types above.

    Raises:
        FileFormatError: They have not, or it is something else.
    """
    try:
        figures = read_json(data)
        msgspec.convert(figures, EstimateFigures)
    except ValueError as error:
        raise FileFormatError(f"not the figures of an estimate ({error})") from error
    return cast("EstimateFigures", figures)
