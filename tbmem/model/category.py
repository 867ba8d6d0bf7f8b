"""What a byte is for, and when it was asked for: torch's own words, as enums."""

from __future__ import annotations

from enum import IntEnum


class Category(IntEnum):
    """What an allocation is for; the number is what files store, so it never changes."""

    UNKNOWN = 0
    PARAMETER = 1
    GRADIENT = 2
    OPTIMIZER_STATE = 3
    ACTIVATION = 4
    INPUT = 5
    BUFFER = 6
    TEMPORARY = 7
    AUTOGRAD_DETAIL = 8
    COMMUNICATION = 9
