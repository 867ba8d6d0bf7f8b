"""When a pattern counts: the numbers that the tests are made with."""

from __future__ import annotations

from dataclasses import dataclass

from tbmem.units import MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The fields are those of the configuration's section ``patterns``, which explains them."""

    warmup_steps: int = 1
    patience: int = 300
    min_growth_bytes: int = 2 * MIB
    min_growth_percent: float = 0.02
    spike_percent: float = 5.0
    held_spike_percent: float = 2.0
    min_spike_bytes: int = 1 * MIB
    min_resident_spike_bytes: int = 16 * MIB
    capacity_percent: tuple[float, ...] = (87.5, 93.75, 97.5)
