"""A line of JSON goes in; of lines that differ from it in the digits of their numbers only, the numbers come out.

Lines of one layout lie under each other, each digit in a column of its own: whether they fit, and what their numbers
are, is found out for thousands of lines at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import F64

U8 = NDArray[np.uint8]
_NUMBER = re.compile(rb'"(\w+)":(\d+)(?:\.(\d+))?(?=[,}])')
_ZERO = ord("0")
_EXACT = 2.0**53
"""Below, a whole number is what it is, and its quotient with a power of ten the nearest there is, as JSON reads it."""
_MOST_DIGITS = 16


class Layout:
    """What lines of one layout have in common.

    Args:
        line: One of them, without its end.
        same: Names of numbers that must be the same in all lines, as all that is no number must.

    Raises:
        ValueError: It is no JSON object, or its numbers cannot be told.
    """

    def __init__(self, line: bytes, same: Collection[str] = ()) -> None:
        self.values: Mapping[str, Any] = _object(line)
        """What the line says."""
        self._places: dict[str, tuple[NDArray[np.int64], F64, float]] = {}
        self._plain = np.frombuffer(line, np.uint8).copy()
        self._most = np.zeros(len(line), np.uint8)
        for match in _NUMBER.finditer(line):
            name, whole, part = match[1].decode(), match[2], match[3] or b""
            count = len(whole) + len(part)
            if name in same or count > _MOST_DIGITS:
                continue
            found = self.values.get(name)
            is_number = isinstance(found, (int, float)) and float(found) == float(match[0].partition(b":")[2])
            if not is_number or name in self._places:
                raise ValueError(f"{name} cannot be told")
            begin, end = match.start(2), match.end(3) if part else match.end(2)
            at = np.array([place for place in range(begin, end) if place != match.end(2)])
            self._plain[at], self._most[at] = _ZERO, 9
            self._places[name] = at, np.power(10.0, np.arange(count - 1, -1, -1)), 10.0 ** len(part)

    def read(self, lines: U8, names: Collection[str]) -> tuple[NDArray[np.bool_], dict[str, F64]]:
        """Numbers of those lines that are of this layout.

        Args:
            lines: By line and place; as long as the layout's own.
            names: Which numbers; those that it does not have are left out.

        Returns:
            Which lines are of this layout, and their numbers by name.
        """
        # what is the same becomes 0, a digit its value, anything else in its place more than 9
        digits = lines ^ self._plain
        fits = ~(digits > self._most).any(axis=1)
        if not fits.all():
            digits = digits[fits]
        columns = {}
        for name in names:
            if name in self._places:
                at, powers, divisor = self._places[name]
                whole = digits[:, at].astype(np.float64) @ powers
                if len(whole) and whole.max() >= _EXACT:
                    return np.zeros(len(lines), np.bool_), {}
                columns[name] = whole / divisor
        return fits, columns


def _object(line: bytes) -> Mapping[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found
