"""What is in use of a simulated device, by this process and by the others of the program."""

from __future__ import annotations

import ctypes
import os

from tbmem.rehearsal.environment import LIBRARY


def own_bytes(number: int) -> int:
    """Bytes in use by this process, its CUDA context included."""
    return _ask("tbmem_device_own", number)


def highest_of_others(number: int) -> int:
    """The most bytes that other processes had in use when this one asked the device for memory."""
    return _ask("tbmem_device_others", number)


def _ask(function: str, number: int) -> int:
    ask = ctypes.CDLL(os.environ[LIBRARY])[function]
    ask.restype = ctypes.c_size_t
    return int(ask(number))
