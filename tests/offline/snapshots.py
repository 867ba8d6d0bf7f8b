"""Memory snapshots as torch writes them, made by hand."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

_ROUND = 512


def snapshot(
    sizes: list[int], *, freed: list[int] | None = None, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A snapshot of one GPU: allocations one after the other, then some that come and go.

    Args:
        sizes: Bytes that are asked for and stay.
        freed: Bytes that are asked for and let go of at once.
        settings: The allocator's settings.
    """
    events: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    frames = [{"filename": "/w/models/attention.py", "line": 7, "name": "forward"}]
    address = start = 1 << 32
    for size in sizes:
        events.append(_event("alloc", address, size, frames, len(events)))
        rounded = -(-size // _ROUND) * _ROUND
        block = {"address": address, "size": rounded, "requested_size": size, "state": "active_allocated"}
        blocks.append({**block, "frames": frames})
        address += rounded
    for size in freed or []:
        for action in ("alloc", "free_requested", "free_completed"):
            events.append(_event(action, address, size, frames, len(events)))
    used = address - start
    room = max([4096, *(-(-size // _ROUND) * _ROUND for size in freed or [])])
    free = {"address": address, "size": room, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {
        "device": 0,
        "address": start,
        "total_size": used + room,
        "allocated_size": used,
        "active_size": used,
        "requested_size": sum(sizes),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [*blocks, free],
    }
    return {"segments": [segment], "device_traces": [events], "allocator_settings": settings or {}}


def _event(action: str, address: int, size: int, frames: list[dict[str, Any]], number: int) -> dict[str, Any]:
    event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1_000_000 + number}
    return {**event, "frames": frames}


def write_snapshot(path: Path, sizes: list[int], **more: Any) -> Path:
    """Write ``snapshot(...)`` as a pickle."""
    path.write_bytes(pickle.dumps(snapshot(sizes, **more), protocol=4))
    return path
