"""Collectives over Python objects on a device that computes nothing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def keep_object_sizes() -> None:
    """Let ``broadcast_object_list`` work: torch joins the objects' sizes on the device, which computes nothing.

    Objects are gathered instead, whose sizes are only copied. A process that is alone gets its own objects.
    """
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d

    replacement = gathering(distributed_c10d.broadcast_object_list, dist)
    for module in (distributed_c10d, dist):
        setattr(module, replacement.__name__, replacement)


def gathering(broadcast: Callable[..., None], dist: Any) -> Callable[..., None]:
    """``broadcast_object_list`` with the same arguments on top of ``dist.all_gather_object``."""
    signature = inspect.signature(broadcast)

    @functools.wraps(broadcast)
    def broadcast_object_list(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options).arguments
        group, objects = given.get("group"), given["object_list"]
        source = given.get("group_src")
        if source is None:
            source = given.get("src") or 0
            source = source if group is None else dist.get_group_rank(group, source)
        is_source = dist.get_rank(group) == source
        gathered: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, list(objects) if is_source else None, group)
        if not is_source and gathered[source] is not None:
            objects[:] = gathered[source]

    return broadcast_object_list
