"""Spans of time within a recording, and the memory of a device within them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import to_builtins

from tbmem.units import format_bytes, format_signed


class Span(NamedTuple):
    """A phase, or one call of a module."""

    name: str
    begin_ns: int
    """Unix time, as the next."""
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """Memory of one device in a phase, over all times that it was entered; sizes in bytes."""

    name: str
    device: str
    calls: int
    peak: int
    """Highest level of the device within it."""
    allocated: int
    """Sum of all allocations within it."""
    net: int
    """Allocated less freed: what it added to the level; negative if it freed more."""
    by_category: Mapping[str, int] = field(default_factory=dict)
    """``net`` by category, the largest first."""

    def __repr__(self) -> str:
        peak, net = format_bytes(self.peak), format_signed(self.net)
        return f"{self.name} on {self.device}: peak {peak}, net {net}, {self.calls} call{'s' * (self.calls != 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleMemory:
    """Memory of one device in the forward pass of a module; sizes in bytes, each of the call where it is largest."""

    name: str
    """Path in the model: ``'layers.0.mlp'``; empty for the model itself."""
    kind: str
    """Class of the module."""
    device: str
    calls: int
    allocated: int
    """Sum of all allocations during the call."""
    kept: int
    """Allocated less freed during the call."""
    saved: int
    """Most bytes of tensors that it saved for the backward pass that were alive at once."""
    peak: int
    """Highest level of the device during the call."""

    def __repr__(self) -> str:
        sizes = f"allocated {format_bytes(self.allocated)}, saved {format_bytes(self.saved)}"
        return f"{self.name or '(model)'} ({self.kind}): {sizes}, peak {format_bytes(self.peak)}"


def as_plain(rows: tuple[PhaseMemory, ...] | tuple[ModuleMemory, ...]) -> list[dict[str, Any]]:
    """Rows as plain JSON values."""
    return [dict(to_builtins(row)) for row in rows]
