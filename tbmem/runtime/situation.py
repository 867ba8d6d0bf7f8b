"""Situation: what a run knows of itself at a moment, for whoever has to explain that moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample


class Situation(NamedTuple):
    """What the run knows of itself."""

    step: int
    """The step that runs."""
    findings: Sequence[Finding] = ()
    last: Mapping[str, MemorySample] = {}
    """The latest sample of each device."""
    rank: int = 0
