"""Checks of a snapshot's values: few references in a pickle can stand for more than a machine can hold or compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbmem.errors import FileFormatError

_LEAST_BYTES = 12
"""Bytes of a segment, block or event with its keys; in snapshots of torch they take 40 and more on average."""
_SCALARS = (str, int, float, bool, type(None))
_LARGEST = 1 << 64
LONGEST_TEXT = 64 << 10
"""Characters of the longest text that is kept: many records may refer to one."""


def check_records(segments: Sequence[Mapping[str, Any]], traces: Sequence[Sequence[Any]], size: int) -> None:
    """Raise FileFormatError if there are more segments, blocks, events and annotations than ``size`` bytes can hold."""
    count = len(segments) + sum(len(segment["blocks"]) for segment in segments) + sum(map(len, traces))
    if count * _LEAST_BYTES > size:
        raise FileFormatError(
            f"{count} segments, blocks and events in {size} bytes: the same ones again and again, as no snapshot has"
        )


def require_texts(values: Iterable[Any]) -> None:
    """Raise TypeError if one of the values is no text."""
    if other := set(map(type, values)) - {str}:
        raise TypeError(f"{other.pop().__name__} in the place of a text")


def is_scalar(value: Any) -> bool:
    """Whether a value is a text that is not long, a number of 64 bits, or nothing."""
    kind = type(value)
    if kind is str:
        return len(value) <= LONGEST_TEXT
    return kind in _SCALARS and (kind is not int or -_LARGEST < value < _LARGEST)


def check_frame(frame: Mapping[str, Any]) -> None:
    """Raise TypeError if a frame holds other than texts and numbers: equal frames are compared, and made texts of."""
    if not all(map(is_scalar, frame.values())):
        raise TypeError("a frame that holds other than short texts and numbers")


def plain_settings(settings: Any) -> dict[str, Any]:
    """The settings of the allocator that are texts and numbers, or one level of them."""
    plain: dict[str, Any] = {}
    for name, value in settings.items() if isinstance(settings, dict) else ():
        if isinstance(value, dict):
            plain[str(name)] = {str(key): inner for key, inner in value.items() if is_scalar(key) and is_scalar(inner)}
        elif isinstance(value, (list, tuple)):
            plain[str(name)] = [inner for inner in value if is_scalar(inner)]
        elif is_scalar(value):
            plain[str(name)] = value
    return plain
