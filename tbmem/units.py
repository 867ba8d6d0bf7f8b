"""Bytes, seconds and counts go in, text such as '1.50 GiB' or whole pages come out, and back; binary units only."""

from __future__ import annotations

import re
import time

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_UNITS = tuple(
    # what would be written as 1024.00 of the next smaller unit is written as 1.00 of this one
    (unit, size, 1023.995 / 1024 * size)
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
)
"""Name, bytes, and from how many bytes on it is used."""
_FACTORS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*")


def format_bytes(count: int | float) -> str:
    """Bytes as a person reads them.

    Args:
        count: Number of bytes; may be negative (a shrinkage).

    Returns:
        Two decimals and a binary unit, ``'45.12 GiB'``; whole bytes below 1 KiB, ``'512 B'``.
    """
    for unit, size, least in _UNITS:
        if count >= least or -count >= least:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


def format_signed(count: int | float) -> str:
    """Bytes of a change, always with its sign: ``'+8.20 MiB'``."""
    return f"{'+' if count >= 0 else '-'}{format_bytes(abs(count))}"


def parse_bytes(text: int | str) -> int:
    """The number of bytes that a size in a configuration means.

    Args:
        text: An integer (bytes) or text such as ``'4 MiB'`` or ``'1.5GiB'``.

    Returns:
        The size in bytes.

    Raises:
        ValueError: The text is no size, or its unit is not a binary one.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        amount, factor = float(text), 1
    else:
        match = _AMOUNT.fullmatch(str(text))
        if match is None or match[2].lower() not in _FACTORS:
            raise ValueError(f"{text!r} is not a size; write bytes or a binary unit such as '4 MiB'")
        amount, factor = float(match[1]), _FACTORS[match[2].lower()]
    if amount < 0:
        raise ValueError(f"{text!r} is negative; a size is 0 or more")
    return int(amount * factor)


def format_duration(seconds: float) -> str:
    """Seconds as a person reads them: ``'0.8 s'``, ``'4 min 10 s'``, ``'2 h 10 min'``."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    seconds = max(int(seconds), 60)
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def format_moment(moment: float) -> str:
    """Unix time in seconds as people write it: ``'2026-11-20 09:31:07'``, by the clock on the wall."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def format_count(count: int | float) -> str:
    """A number of things in groups of three digits: ``'12 345'``."""
    return f"{count:,.0f}".replace(",", " ")


def round_up(count: int, step: int) -> int:
    """The next multiple of a step: a size in whole pages."""
    return (count + step - 1) // step * step
