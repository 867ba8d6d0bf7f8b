"""A number that nobody knows: it counts as the one that it stands for, and whatever is made of it is unknown, too."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any


class UnknownInt(int):
    """A whole number that was read of a tensor without values."""

    where: str
    """The line that read it."""

    def __ceil__(self) -> UnknownInt:
        return self

    __floor__ = __trunc__ = __round__ = __ceil__  # type: ignore[assignment]


class UnknownFloat(float):
    """What a division by such a number makes."""

    where: str

    def __round__(self, digits: Any = None) -> Any:
        return unknown(round(float(self), digits), self.where)

    def __ceil__(self) -> Any:
        return unknown(math.ceil(float(self)), self.where)

    def __floor__(self) -> Any:
        return unknown(math.floor(float(self)), self.where)

    __trunc__ = __floor__


Unknown = (UnknownInt, UnknownFloat)


def unknown(value: Any, where: str) -> Any:
    """A number as one that is not known.

    Args:
        value: What it counts as.
        where: The line that read it.
    """
    made = UnknownInt(value) if isinstance(value, int) else UnknownFloat(value)
    made.where = where
    return made


def where_read(*values: Any) -> str | None:
    """The line that read the first of some numbers that are not known; ``None`` if all are."""
    return next((value.where for value in values if isinstance(value, Unknown)), None)


def _spreading(compute: Callable[..., Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def spread(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        one, two = _plain(self), _plain(other)
        try:
            value = compute(two, one) if reflected else compute(one, two)
        except ZeroDivisionError:
            value = compute(two, 1) if reflected else compute(one, 1)
        return unknown(value, self.where)

    return spread


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, int) else float(value)


def _same(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: unknown(compute(_plain(self)), self.where)


for _kind in Unknown:
    for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        setattr(_kind, f"__{_name}__", _spreading(getattr(operator, _name), reflected=False))
        setattr(_kind, f"__r{_name}__", _spreading(getattr(operator, _name), reflected=True))
    for _name in ("neg", "abs", "pos"):
        setattr(_kind, f"__{_name}__", _same(getattr(operator, _name)))
