"""Categories and phases of allocations in torch's terms, and their display names."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Category(IntEnum):
    """What an allocation is for; files store the numbers, so they never change."""

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
    """How the category of an allocation is known; files store the numbers, so they never change."""

    NONE = 0
    INFERRED = 1  # from its stack, its phase, or sizes, addresses and frees
    KNOWN = 2  # its address and lifetime match an address book


class Phase(IntEnum):
    """Phase of a training step that allocated; files store the numbers, so they never change."""

    OTHER = 0  # between the others, or unknown
    SETUP = 1  # before the first step
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4


WORDS: Mapping[str, str] = {
    **{category.name: category.name.replace("_", " ").capitalize() for category in Category},
    Phase.OTHER.name: "other",
    Phase.SETUP.name: "setup",
    Phase.FORWARD.name: "forward pass",
    Phase.BACKWARD.name: "backward pass",
    Phase.OPTIMIZER.name: "optimizer step",
}
"""Display names of categories and phases for every screen; machine-readable files have the enum's names."""


def word_of(name: str) -> str:
    """Display name of ``'OPTIMIZER_STATE'`` or ``'optimizer_state'``; a rule's label (``'Attention'``) as it is."""
    return WORDS.get(name.upper(), name)
