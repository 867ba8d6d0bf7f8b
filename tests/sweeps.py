"""A sweep made up by hand."""

from __future__ import annotations

from dataclasses import replace

from tbmem.model.sweep import LargeAllocation, MemoryPeak, ModelFacts, Status, Sweep, SweepCase, SweepCell
from tbmem.units import GIB, MIB

CASE = SweepCase(size="small", context=128, batch=4, what="training", device="cuda")
FACTS = ModelFacts(size="small", parameters=128_625_408, layers=12, width=768, heads=12, inner=3072, vocabulary=10_000)


def moment(allocated: int, activations: int = 600 * MIB, parameters: int = 500 * MIB) -> MemoryPeak:
    parts = {"parameter": parameters, "gradient": parameters, "optimizer_state": 2 * parameters}
    largest = (LargeAllocation(bytes=29 * MIB, category="gradient", what="output", line="model.py:12 forward"),)
    return MemoryPeak(
        allocated=allocated,
        reserved=allocated + GIB,
        phase="backward",
        parts=parts,
        largest=largest,
        activations=activations,
    )


def a_sweep() -> Sweep:
    measured = SweepCell(
        case=CASE, status=Status.MEASURED, measured=moment(3 * GIB), predicted=moment(3 * GIB - MIB), seconds=0.5
    )
    mixed = SweepCell(
        case=replace(CASE, precision="bf16"),
        status=Status.OUT_OF_MEMORY,
        predicted=moment(2 * GIB, activations=400 * MIB),
        note="CUDA out of memory.",
    )
    return Sweep(device="a GPU", cells=(measured, mixed), models={"small": FACTS})
