"""Finds the parameters among a trace's older memory: operators name the shapes of their weights.

A trace lists nothing that is older than it and not freed; of such memory it has a total only.
"""

from __future__ import annotations

import math
from itertools import chain, repeat
from typing import NamedTuple

from tbmem.model.category import Basis, Category, Phase
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BEFORE, AllocationRows, DeviceTotals

_BYTES = {
    **{"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "signed char": 1, "unsigned char": 1},
    **{"c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1},
}
"""Bytes of an element, by the type's name in a trace."""
_ROUNDING = 512
"""Bytes; CUDA's caching allocator rounds to multiples of it."""
_SAME = 0.01
"""By how much weights without tied ones may differ from all older memory."""


class _Weight(NamedTuple):
    operator: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * _BYTES.get(self.dtype, 0)

    @property
    def text(self) -> str:
        """``'aten::linear: float [4096, 1024]'``."""
        return f"{self.operator}: {self.dtype.removeprefix('c10::')} {list(self.shape)}"


def with_weights(timeline: AllocationTimeline, device: int) -> AllocationTimeline:
    """A copy with a row for each weight that operators used, as far as a device's unlisted bytes hold them."""
    weights, totals = _weights(timeline), timeline.devices[device]
    fitting = _fitting(weights, totals)
    if not fitting:
        return timeline
    texts = sorted({weight.text for weight in fitting})
    number = {text: len(timeline.names) + index for index, text in enumerate(texts)}
    size = [_rounded(weight, totals) for weight in fitting]
    rows = AllocationRows.of(
        len(fitting),
        bytes=size,
        device=device,
        alloc_event=BEFORE,
        phase=Phase.SETUP,
        category=Category.PARAMETER,
        basis=Basis.INFERRED,
        name=[number[weight.text] for weight in fitting],
    )
    return timeline.with_columns(names=(*timeline.names, *texts)).with_older_rows(rows)


def _weights(timeline: AllocationTimeline) -> list[_Weight]:
    """Weights of one pass: an operator that is called once in each is called as often as there are passes."""
    calls = {_Weight(name, dtype, tuple(shape)): n for name, dtype, shape, n in timeline.about.get("weights", ())}
    passes = math.gcd(*calls.values())
    found = chain.from_iterable(repeat(weight, n // passes) for weight, n in calls.items())
    return sorted((weight for weight in found if weight.bytes), key=_size, reverse=True)


def _fitting(weights: list[_Weight], totals: DeviceTotals) -> list[_Weight]:
    """Weights, the largest first, that fit; an output layer counts only if older memory is as large as with it."""
    together = sum(_rounded(weight, totals) for weight in weights)
    if abs(together - totals.unlisted_bytes) > _SAME * together:
        table = max((weight for weight in weights if weight.operator == "aten::embedding"), default=None, key=_size)
        tied = [weight for weight in weights if table and weight != table and weight.shape == table.shape]
        weights = [weight for weight in weights if weight not in tied]
    free, fitting = totals.unlisted_bytes, []
    for weight in weights:
        if _rounded(weight, totals) <= free:
            fitting.append(weight)
            free -= _rounded(weight, totals)
    return fitting


def _size(weight: _Weight) -> int:
    return weight.bytes


def _rounded(weight: _Weight, totals: DeviceTotals) -> int:
    return -(-weight.bytes // _ROUNDING) * _ROUNDING if totals.measure == "rounded" else weight.bytes
