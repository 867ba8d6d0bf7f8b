"""Collectives over Python objects on a device that computes nothing."""

from __future__ import annotations

import functools
import inspect
import pickle  # nosec B403  # objects of the rehearsed program itself
from collections.abc import Callable
from typing import Any


def keep_object_sizes() -> None:
    """Let torch's functions that send lists of objects work: they join the objects' sizes on the device.

    Instead, objects are gathered, or sent as one, whose size is only copied. A process that is alone keeps its own.
    """
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d as module

    replacements = (
        gathering(module.broadcast_object_list, dist),
        sending(module.send_object_list, dist),
        receiving(module.recv_object_list, dist),
    )
    for replacement in replacements:
        for each in (module, dist):
            setattr(each, replacement.__name__, replacement)


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


def sending(send: Callable[..., None], dist: Any) -> Callable[..., None]:
    """``send_object_list`` with the same arguments: a size, then all objects in one piece."""
    signature = inspect.signature(send)

    @functools.wraps(send)
    def send_object_list(*arguments: Any, **options: Any) -> None:
        import torch

        given = signature.bind(*arguments, **options).arguments
        where = _device(given)
        content = torch.frombuffer(bytearray(pickle.dumps(list(given["object_list"]))), dtype=torch.uint8)
        peer = {name: given[name] for name in ("dst", "group", "group_dst") if name in given}
        dist.send(torch.tensor([content.numel()]).to(where), **peer)
        dist.send(content.to(where), **peer)

    return send_object_list


def receiving(receive: Callable[..., Any], dist: Any) -> Callable[..., Any]:
    """``recv_object_list`` with the same arguments; without a peer the objects stay as they are."""
    signature = inspect.signature(receive)

    @functools.wraps(receive)
    def recv_object_list(*arguments: Any, **options: Any) -> Any:
        import torch

        given = signature.bind(*arguments, **options).arguments
        where = _device(given)
        peer = {name: given[name] for name in ("src", "group", "group_src") if name in given}
        size = torch.empty(1, dtype=torch.int64, device=where)
        rank = dist.recv(size, **peer)
        content = torch.empty(int(size.item()), dtype=torch.uint8, device=where)
        if content.numel():
            dist.recv(content, **peer)
            # pickled above by a rank of the same program, as torch does
            given["object_list"][:] = pickle.loads(bytes(content.tolist()))  # nosec B301  # the program's own
        return rank

    return recv_object_list


def _device(given: dict[str, Any]) -> Any:
    """The device that messages travel through: the caller's, else the current GPU."""
    import torch

    if given.get("device") is not None:
        return given["device"]
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
