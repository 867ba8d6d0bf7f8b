"""Parameters as they stand in a URL go in; checked values come out, or a refusal that says which one is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tbmem.errors import UsageError

Params = Mapping[str, Sequence[str]]


class MissingError(UsageError):
    """What was asked for is not there (any more)."""


class OutsideError(UsageError):
    """What was asked for lies outside of the log folder."""


class Asked:
    """Parameters of a question."""

    def __init__(self, params: Params) -> None:
        self._params = {name: [value for value in values if value != ""] for name, values in params.items()}

    def all(self, name: str) -> list[str]:
        """Every value."""
        return list(self._params.get(name, ()))

    def text(self, name: str) -> str | None:
        """The value; ``None`` if it is not given.

        Raises:
            UsageError: It is given twice.
        """
        values = self.all(name)
        if len(values) > 1:
            raise UsageError(f"{name}= is given {len(values)} times")
        return values[0] if values else None

    def number(self, name: str) -> float | None:
        """The value as a finite number.

        Raises:
            UsageError: It is none.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{name}={text}: not a number")
        return value

    def whole(self, name: str, default: int | None, least: int, most: int) -> int:
        """The value as a whole number.

        Raises:
            UsageError: It is none, or not in the range, or missing without a default.
        """
        text = self.text(name)
        if text is None:
            if default is None:
                raise UsageError(f"{name}= is missing")
            return default
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"{name}={text}: not a whole number") from None
        if not least <= value <= most:
            raise UsageError(f"{name}={text}: not between {least} and {most}")
        return value
