"""Baseline: peaks and levels of a run as a file, to be compared with those of later runs."""

from __future__ import annotations

from typing import Any

import msgspec

from tbmem.errors import FileFormatError
from tbmem.model.json_values import Count, read_json

_SCHEMA = 1
_REWRITE = "--update-baseline writes one"


class Baseline(msgspec.Struct, frozen=True):
    """Bytes by rank and device: ``{'rank 0 cpu': 1048576}``."""

    peaks: dict[str, Count]
    """The highest levels."""
    levels: dict[str, Count] = {}
    """Levels at the end."""
    schema: int | None = None

    @classmethod
    def from_json(cls, data: bytes) -> Baseline:
        """The baseline that ``to_json`` returned; FileFormatError if it is damaged or of another version."""
        try:
            values = read_json(data)
        except ValueError as error:
            raise FileFormatError(f"not a baseline of tbmem ({error}); {_REWRITE}") from error
        try:
            baseline = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise FileFormatError(f"not a baseline of tbmem{_invalid_size(values)}; {_REWRITE}") from error
        if baseline.schema != _SCHEMA:
            raise FileFormatError("a baseline of another version; --update-baseline writes it anew")
        return baseline

    def to_json(self) -> bytes:
        """The baseline as indented JSON."""
        values = {"schema": _SCHEMA, "peaks": self.peaks, "levels": self.levels}
        return msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"


def _invalid_size(values: Any) -> str:
    """``" (peaks, 'rank 0 cpu': 'lots' is no number of bytes)"``; empty where it is no size that is wrong."""
    for name in ("peaks", "levels"):
        sizes = values.get(name) if isinstance(values, dict) else None
        for place, size in sizes.items() if isinstance(sizes, dict) else ():
            if type(size) is not int or size < 0:
                return f" ({name}, {place!r}: {size!r} is no number of bytes)"
    return ""
