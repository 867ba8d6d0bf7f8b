"""The launcher's environment or torch.distributed goes in; which rank this process is comes out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rank:
    """This process's place among the processes of a job."""

    rank: int = 0
    world_size: int = 1


def find_rank(environment: Mapping[str, str] | None = None) -> Rank:
    """Rank and world size, from torch.distributed where it is initialised, else from RANK and WORLD_SIZE.

    Args:
        environment: Variables to read; ``os.environ`` by default.

    Returns:
        Rank 0 of 1 where nothing says otherwise.
    """
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return Rank(dist.get_rank(), dist.get_world_size())
    variables = os.environ if environment is None else environment
    try:
        rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
    except (KeyError, ValueError):
        return Rank()
    return Rank(rank, size) if 0 <= rank < size else Rank()
