"""Reads JSON of unknown origin, and the types of numbers in the records that are made of it."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import msgspec

MOST = 1 << 53
"""Limit of whole numbers: up to here each one is exact in a column of floats."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
"""Bytes, steps, ranks or occurrences."""
Size = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
"""Bytes that may be a difference."""
Number = Annotated[float, msgspec.Meta(ge=-float(MOST), le=float(MOST))]
UnixTime = Annotated[float, msgspec.Meta(ge=0.0, le=253402300799.0)]
"""Seconds, up to the year 9999."""


def read_json(data: bytes | str) -> Any:
    """Parse JSON; what JSON or a machine's counters cannot hold does not get in.

    Numbers that are not finite or larger than 64 bits become ``None`` (such a value was not read), and halves of
    surrogate pairs, which no terminal and no file takes, become question marks.

    Raises:
        ValueError: It is not JSON, or nested too deep.
    """
    try:
        return plain(json.loads(data))
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def plain(value: Any) -> Any:
    """The same plain value without what JSON, or a counter of a machine, cannot hold; see :func:`read_json`."""
    if isinstance(value, dict):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def encodable(text: str) -> str:
    """The text with question marks for halves of surrogate pairs, as Python reads paths that are no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
