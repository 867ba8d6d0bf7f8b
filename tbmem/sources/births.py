"""A device goes in; whatever can tell which places of the program allocate memory that survives, comes out."""

from __future__ import annotations

import torch

from tbmem.sources.birth_report import BirthReport, Births
from tbmem.sources.cpu_births import CpuBirths
from tbmem.sources.device_births import DeviceBirths
from tbmem.sources.history_state import cuda_history_is_on

__all__ = ["BirthReport", "Births", "births_of"]


def births_of(device: str, *, history_is_on: bool = False) -> Births | None:
    """What watches births on a device, for one window of steps.

    Args:
        device: As samples name it, ``cuda:0``.
        history_is_on: Whether memory history is recorded already, for all the caller knows; torch is asked as well.

    Returns:
        ``None`` where nothing can watch them.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return CpuBirths()
    module = getattr(torch, kind, None) if kind in ("cuda", "xpu") else None
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    if not hasattr(module.memory, "_record_memory_history"):
        return None
    is_on = history_is_on or (kind == "cuda" and cuda_history_is_on())
    return DeviceBirths(module.memory, int(index or 0), history_is_on=is_on)
