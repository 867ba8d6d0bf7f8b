"""Cells of a sweep: one training or forward pass each, with its measured and its predicted memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from tbmem.model.job import Job

PRECISIONS: dict[str, str | None] = {"fp32": None, "bf16": "bfloat16", "fp16": "float16"}
"""What is asked for, and autocast's type."""
PASSES = ("forward", "training")


class Status(str, Enum):
    """What became of a cell."""

    MEASURED = "measured"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCase:
    """What one cell measures."""

    size: str
    """Name of a built-in model."""
    context: int
    """Tokens of a sample."""
    batch: int = 4
    what: str = "forward"
    """``'forward'``, without gradients, or ``'training'``: forward, backward and optimizer."""
    precision: str = "fp32"
    """``'fp32'``, or autocast: ``'bf16'``, ``'fp16'``."""
    device: str = "cpu"
    warmup: int = 1
    """Steps that are run first and not measured."""
    steps: int = 1
    """Steps that are measured."""

    @property
    def kind(self) -> str:
        """``'cuda'`` or ``'cpu'``."""
        return self.device.partition(":")[0]

    def job(self) -> Job:
        """The same to execute on fake or real tensors; two steps, the second being steady."""
        return Job(
            model=self.size,
            batch=self.batch,
            sequence=self.context,
            amp=PRECISIONS[self.precision],
            inference=self.what == "forward",
            device=self.kind,
        )

    def in_precision(self, precision: str) -> SweepCase:
        """The same in another precision."""
        return replace(self, precision=precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeAllocation:
    """One of the largest allocations at a peak."""

    bytes: int
    category: str
    what: str
    """Module or operator."""
    line: str
    """Where it was asked for; in the backward pass the line of the forward; empty if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """A highest moment, in bytes."""

    allocated: int
    reserved: int | None = None
    """``None`` where there is no caching allocator."""
    phase: str = ""
    """Part of the step in which it is: ``'forward'``, ``'backward'``, ``'optimizer'``; ``'other'`` if not known."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """By category."""
    largest: tuple[LargeAllocation, ...] = ()
    """Of those made in the step: parameters and optimizer state were there before."""
    activations: int = 0
    """The most that is kept for the backward pass at any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """What came out for one case."""

    case: SweepCase
    status: Status
    measured: MemoryPeak | None = None
    predicted: MemoryPeak | None = None
    seconds: float = 0.0
    """Of a measured step."""
    file: str = ""
    """Recording, beside the tables."""
    note: str = ""
    """What happened instead, or was changed; sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Numbers of a model that derivations need."""

    size: str
    parameters: int
    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All cells."""

    device: str
    """``'cpu'`` or the GPU's name."""
    cells: tuple[SweepCell, ...]
    models: Mapping[str, ModelFacts]
    notes: tuple[str, ...] = ()

    def cell(self, case: SweepCase) -> SweepCell | None:
        """The cell of a case, if it is there."""
        return next((one for one in self.cells if one.case == case), None)


def file_stems(cases: tuple[SweepCase, ...]) -> Iterator[str]:
    """Names of the cells' files, without their ends: as short as they can be and still differ.

    Args:
        cases: All of a sweep.
    """
    several_batches = len({case.batch for case in cases}) > 1
    several_precisions = any(case.precision != "fp32" for case in cases)
    for case in cases:
        batch = f"_batch{case.batch}" if several_batches else ""
        precision = f"_{case.precision}" if several_precisions else ""
        yield f"{case.size}_ctx{case.context}{batch}_{case.what}{precision}"
