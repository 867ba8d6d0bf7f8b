"""What a byte is for, and when it was asked for: torch's own words as enums, and their names for people."""

from __future__ import annotations

from collections.abc import Mapping
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


WORDS: Mapping[str, str] = {
    Category.UNKNOWN.name: "Unknown",
    Category.PARAMETER.name: "Parameter",
    Category.GRADIENT.name: "Gradient",
    Category.OPTIMIZER_STATE.name: "Optimizer state",
    Category.ACTIVATION.name: "Activation",
    Category.INPUT.name: "Input",
    Category.BUFFER.name: "Buffer",
    Category.TEMPORARY.name: "Temporary",
    Category.AUTOGRAD_DETAIL.name: "Autograd detail",
    Category.COMMUNICATION.name: "Communication",
    Phase.OTHER.name: "other",
    Phase.SETUP.name: "setup",
    Phase.FORWARD.name: "forward pass",
    Phase.BACKWARD.name: "backward pass",
    Phase.OPTIMIZER.name: "optimizer step",
}
"""Names of categories and phases for people: every screen reads them here, files for programs keep the enum's."""


def word_of(name: str) -> str:
    """A category or phase as people read it; labels of rules are words already.

    Args:
        name: The enum's, ``'OPTIMIZER_STATE'`` or ``'optimizer_state'``, or a label such as ``'Attention'``.
    """
    return WORDS.get(name.upper(), name)
