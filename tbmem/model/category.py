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


class Basis(IntEnum):
    """How the category of an allocation is known; the number is what files store, so it never changes."""

    NONE = 0
    """Nobody has said what it is for."""
    INFERRED = 1
    """Guessed, from words in its stack."""
    KNOWN = 2
    """Its address and lifetime agree with an address book."""


class Phase(IntEnum):
    """When in a training step an allocation was asked for; the number is what files store, so it never changes."""

    OTHER = 0
    """Between the others, or not known."""
    SETUP = 1
    """Before the first step."""
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
