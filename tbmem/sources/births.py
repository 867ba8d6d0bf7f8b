"""A device goes in; whatever can tell which places of the program allocate memory that survives, comes out."""

from __future__ import annotations

from tbmem.sources.birth_report import BirthReport, Births
from tbmem.sources.cpu_births import CpuBirths

__all__ = ["BirthReport", "Births", "births_of"]


def births_of(device: str) -> Births | None:
    """What watches births on a device, for one window of steps.

    Args:
        device: As samples name it, ``cuda:0``.

    Returns:
        ``None`` where nothing can watch them.
    """
    if device == "cpu":
        return CpuBirths()
    return None
