"""One process as any rank of any world: a rendezvous that waits for nobody."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_Store: Any = getattr(dist, "Store", object)  # without it torch has no distributed package
_stores: list[Any] = []
"""torch keeps only the C++ part of a store."""
_UNKNOWN = bytes(128)
"""What a peer would have written: also the length of NCCL's unique id."""


def join_world(rank: int, world_size: int) -> None:
    """Let ``init_process_group`` and ``new_group`` of this process succeed without peers.

    Groups of the CPU become torch's own fake groups; those of NCCL are answered by the simulated device.
    """
    if not dist.is_available():
        return
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  (registers the backend)
    from torch.distributed import distributed_c10d

    _replace(distributed_c10d.init_process_group, _alone(distributed_c10d.init_process_group, rank, world_size))
    _replace(distributed_c10d.new_group, _without_peers(distributed_c10d.new_group))


def backend_without_peers(name: str | None) -> str:
    """Backends that need no peers: ``'gloo'`` becomes ``'fake'``, none the fake one for the CPU and NCCL."""
    return re.sub(r"\b(gloo|mpi|ucc)\b", "fake", name.lower()) if name else "cpu:fake,cuda:nccl"


def _replace(original: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Put a function in the place of torch's in each module that has imported it, as ``device_mesh`` has."""
    for module in list(sys.modules.values()):
        for name in (original.__name__, f"_{original.__name__}"):
            if getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, function)


def _alone(init: Callable[..., None], rank: int, world_size: int) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def init_process_group(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options).arguments
        given["backend"] = backend_without_peers(given.get("backend"))
        _stores.append(PeerlessStore())
        given.update(init_method=None, store=_stores[-1], rank=rank, world_size=world_size)
        init(**given)

    return init_process_group


def _without_peers(new: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(new)

    @functools.wraps(new)
    def new_group(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        if given.get("backend"):
            given["backend"] = backend_without_peers(given["backend"])
        return new(**given)

    return new_group


class PeerlessStore(_Store):  # type: ignore[misc]
    """A key-value store in which all peers have already written what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        """Write a value."""
        self._values[key] = value if isinstance(value, bytes) else str(value).encode()

    def get(self, key: str) -> bytes:
        """The value, or what a peer would have written."""
        return self._values.get(key, _UNKNOWN)

    def add(self, key: str, amount: int) -> int:
        """Count."""
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Write a value where there is none, or the expected one."""
        current = self._values.get(key)
        if current is None or current == str(expected).encode():
            self.set(key, desired)
        return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Return at once."""

    def check(self, keys: list[str]) -> bool:
        """Whether this process has written all of them."""
        return all(key in self._values for key in keys)

    def delete_key(self, key: str) -> bool:
        """Remove a value."""
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        """Number of values."""
        return len(self._values)

    def set_timeout(self, timeout: timedelta) -> None:
        """Nothing is waited for."""

    def has_extended_api(self) -> bool:
        """Whether several keys can be asked for at once: they cannot."""
        return False
