"""Small memory snapshots."""

from __future__ import annotations

from typing import Any

Snapshot = dict[str, Any]


FRAMES = [{"filename": "train.py", "name": "loop", "line": 7}]


def event(action: str, addr: int = 0, size: int = 0, time_us: int = 0, **others: Any) -> Snapshot:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": FRAMES, **others}


def block(size: int, requested: int, state: str = "active_allocated", **others: Any) -> Snapshot:
    return {"size": size, "requested_size": requested, "state": state, "frames": FRAMES, **others}


def segment(address: int, *blocks: Snapshot, **others: Any) -> Snapshot:
    total = sum(one["size"] for one in blocks)
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "stream": 0,
        "segment_type": "large",
        "blocks": list(blocks),
        **others,
    }


def snapshot(*segments: Snapshot, trace: list[Snapshot] | None = None, **others: Any) -> Snapshot:
    return {"segments": list(segments), "device_traces": [trace or []], **others}


def one_of_everything() -> Snapshot:
    """Base 1000 + 300; then an allocation that stays, one that goes, and the free of the 300."""
    return snapshot(
        segment(0, block(1024, 1000), block(512, 500), block(512, 0, "inactive")),
        trace=[
            event("alloc", 1024, 500, 10),
            event("alloc", 1536, 400, 20),
            event("free_requested", 1536, 400, 30),
            event("free_completed", 1536, 400, 31),
            event("free_completed", 9999, 300, 40),
        ],
    )
