"""Failure: a simulated request that ran out of memory, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tbmem.units import format_bytes


class Reason(str, Enum):
    """Why a request could not be served."""

    TOO_LARGE = "too_large"
    """More than the whole device, or its allowed share, even if nothing else were allocated."""
    LIMIT = "limit"
    """The allowed share of the device is used up, not the device."""
    FRAGMENTATION = "fragmentation"
    """Reserved memory that is free would have been enough, but it lies in pieces or in another pool or stream."""
    FULL = "full"
    """What is allocated leaves too little."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A request that ran out of memory; all figures in bytes."""

    reason: Reason
    requested: int
    needed: int
    """What the device was asked for."""
    allocated: int
    reserved: int
    allowed: int
    """What this process may reserve: the device, or its share of it."""
    largest_free: int
    """The largest cached block of the request's pool and stream."""

    @property
    def sentence(self) -> str:
        """One sentence for a person."""
        what = f"{format_bytes(self.requested)} could not be allocated"
        free = self.reserved - self.allocated
        if self.reason is Reason.TOO_LARGE:
            return f"{what}: the device gives this process {format_bytes(self.allowed)} in all"
        if self.reason is Reason.FRAGMENTATION:
            return (
                f"{what}: {format_bytes(free)} are reserved and free, but in pieces; "
                f"the largest that fits is {format_bytes(self.largest_free)}"
            )
        limit = "this process may reserve" if self.reason is Reason.LIMIT else "the device has"
        return (
            f"{what}: {format_bytes(self.allocated)} are allocated, {format_bytes(free)} more are reserved, "
            f"and {limit} {format_bytes(self.allowed)}"
        )


class SimulatedOutOfMemory(Exception):
    """A simulated request failed; ``failure`` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure
