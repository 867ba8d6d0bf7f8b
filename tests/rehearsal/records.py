"""Results of rehearsals, made by hand."""

from __future__ import annotations

from typing import Any

from tbmem.model.rehearsal import DevicePeak, ProcessResult, Rehearsal

GIB = 1 << 30


def process(rank: int = 0, *, reserved: int = 10 * GIB, out_of_memory: bool = False, **values: Any) -> ProcessResult:
    """One process with one device of 40 GiB, of which the context takes 1 GiB."""
    device = DevicePeak(
        device=f"cuda:{rank}",
        allocated=reserved - GIB,
        step=2,
        reserved=reserved,
        outside=GIB,
        capacity=40 * GIB,
        retries=0,
    )
    settings: dict[str, Any] = {"world_size": 1, "steps": 3, "exception": None, "folder": None, "devices": (device,)}
    return ProcessResult(rank=rank, out_of_memory=out_of_memory, **{**settings, **values})


def rehearsal(*processes: ProcessResult, **values: Any) -> Rehearsal:
    """A rehearsal of these processes, by default of one that fits."""
    settings: dict[str, Any] = {"program": "train.py", "gpu": "a100-40gb", "gpus": 1, "seconds": 2.0}
    return Rehearsal(processes=processes or (process(),), **{**settings, **values})
