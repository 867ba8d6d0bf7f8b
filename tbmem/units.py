"""Formatting of bytes (binary units), seconds and counts, and parsing of sizes."""

from __future__ import annotations

import re
import time

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_UNITS = tuple(
    # what would round to 1024 of the next smaller unit is written as 1.00 of this one
    (unit, size, 1023.5 / 1024 * size)
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
)
"""Name, bytes, and the least bytes it is used for."""
_FACTORS: dict[str, int] = {
    "b": 1,
    "bytes": 1,
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*")


def format_bytes(count: int | float) -> str:
    """Bytes, perhaps negative, with a binary unit: ``'45.12 GiB'``, ``'1017 MiB'``, ``'512 B'``."""
    for unit, size, least in _UNITS:
        if count >= least or -count >= least:
            return f"{_digits(count / size)} {unit}"
    return f"{round(count)} B"


def _digits(amount: float) -> str:
    """Two decimals, none from 1000 on."""
    text = f"{amount:.2f}"
    return text if abs(float(text)) < 1000 else f"{amount:.0f}"


def format_signed(count: int | float) -> str:
    """Bytes of a change, always with its sign: ``'+8.20 MiB'``."""
    return f"{'+' if count >= 0 else '-'}{format_bytes(abs(count))}"


def format_range(low: int | float, high: int | float) -> str:
    """Bytes between two bounds, in one unit where it suits both: ``'0.99 to 1.01 GiB'``, ``'1.01 GiB'``."""
    lower, upper = format_bytes(low), format_bytes(high)
    if lower == upper:
        return upper
    size = next((size for _, size, least in _UNITS if high >= least), 1)
    if low and low < size / 10:
        # in the unit of the higher bound it would lose its digits
        return f"{lower} to {upper}"
    return f"{_digits(low / size) if size > 1 else format(low, '.0f')} to {upper}"


def format_share(part: int | float, whole: int | float | None) -> str:
    """A share of a total: ``'5 % of 23.54 GiB'``; empty where the total is unknown."""
    return f"{100 * part / whole:.0f} % of {format_bytes(whole)}" if whole else ""


def parse_bytes(text: int | str) -> int:
    """The bytes of ``'1.5GiB'``, ``'10 GB'`` (1000³ bytes each), ``'4096 B'`` or 0; else ValueError."""
    match = None if isinstance(text, bool) else _AMOUNT.fullmatch(str(text))
    unit = "" if match is None else match[2].lower()
    if match is None or (unit and unit not in _FACTORS):
        number = "a number that is not negative" if str(text).strip().startswith("-") else "a number"
        raise ValueError(f"{text!r} is not a size; write {number} and its unit, such as '4 MiB' or '10 GB'")
    amount = float(match[1])
    if not unit and amount:
        raise ValueError(f"{text!r} lacks its unit; write '{text} MiB', or '{text} B' for bytes")
    return int(amount * _FACTORS[unit or "b"])


def format_duration(seconds: float) -> str:
    """Seconds: ``'0.8 s'``, ``'4 min 10 s'``, ``'2 h 10 min'``."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    rounded = int(seconds + 0.5)
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    minutes = int(seconds / 60 + 0.5)
    return f"{minutes // 60} h {minutes % 60} min"


def format_speed(steps_per_second: float) -> str:
    """Steps per second: ``'0.468 steps/s'``, ``'12 346 steps/s'``."""
    fast = steps_per_second >= 100
    return f"{format_count(steps_per_second) if fast else format(steps_per_second, '.3g')} steps/s"


def format_moment(moment: float) -> str:
    """Unix time in seconds as local time: ``'2026-11-20 09:31:07'``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def format_count(count: int | float) -> str:
    """A count in groups of three digits: ``'12 345'``."""
    return f"{count:,.0f}".replace(",", " ")


def round_up(count: int, step: int) -> int:
    """The next multiple of a step."""
    return (count + step - 1) // step * step
