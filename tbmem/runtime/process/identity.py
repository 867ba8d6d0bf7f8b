"""The process id, updated after a fork, and the rank in a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


class Process:
    """This process; ``Process.number`` is ``os.getpid()`` without a system call, updated in a forked child."""

    number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setattr(Process, "number", os.getpid()))


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank of this process in a job."""

    rank: int = 0
    world_size: int = 1


def find_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """Rank and world size from torch.distributed if initialised, else from RANK and WORLD_SIZE; 0 of 1 by default."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return Rank(dist.get_rank(), dist.get_world_size())
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError):
        return Rank()
    return Rank(rank, size) if 0 <= rank < size else Rank()
