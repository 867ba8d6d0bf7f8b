"""What the demo can do wrong on purpose; a module of its own, so that the command line need not load torch."""

from __future__ import annotations

from enum import Enum


class Fault(str, Enum):
    """A fault to inject."""

    LEAK = "leak"
    SPIKE = "spike"
