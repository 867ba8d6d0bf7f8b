"""The small training run of ``tbmem demo``, and the faults that it can be given; loads no torch by itself."""

from __future__ import annotations

from enum import Enum


class Fault(str, Enum):
    """A fault to inject."""

    LEAK = "leak"
    SPIKE = "spike"
