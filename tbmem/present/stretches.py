"""A value for each moment goes in; stretches of moments with the same value come out: phases, steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I64


class Stretch(NamedTuple):
    """Moments in a row that have something in common."""

    begin: float
    end: float
    value: int


def stretches(values: I64, x: NDArray[np.float64], least: float = 0) -> list[Stretch]:
    """Moments in a row with one value, as stretches of the axis.

    Args:
        values: One for each moment.
        x: Where each moment lies.
        least: Shorter ones become part of the one before.
    """
    begins = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    ends = np.append(x[begins[1:]], x[-1])
    found: list[Stretch] = []
    for begin, end, value in zip(x[begins].tolist(), ends.tolist(), values[begins].tolist(), strict=True):
        same = found and (found[-1].value == value or end - begin < least)
        if same:
            found[-1] = found[-1]._replace(end=end)
        else:
            found.append(Stretch(begin, end, value))
    return found
