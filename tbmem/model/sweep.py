"""Records of a sweep: each cell has the measured and the predicted memory of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tbmem.model.job import DTYPES, Job

PASSES = ("forward", "training")


class Status(str, Enum):
    """Outcome of a cell."""

    MEASURED = "measured"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCase:
    """The run that one cell measures."""

    size: str
    context: int
    batch: int = 4
    what: str = "forward"  # 'forward', without gradients, or 'training': forward, backward and optimizer
    precision: str = "fp32"
    device: str = "cpu"
    warmup: int = 1  # steps before the measured ones
    steps: int = 1

    @property
    def kind(self) -> str:
        """``'cuda'`` or ``'cpu'``."""
        return self.device.partition(":")[0]

    def job(self) -> Job:
        """The job to run on fake or real tensors."""
        return Job(
            model=self.size,
            batch=self.batch,
            sequence=self.context,
            amp=None if self.precision == "fp32" else DTYPES[self.precision],
            inference=self.what == "forward",
            device=self.kind,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeAllocation:
    """One of the largest allocations at a peak."""

    bytes: int
    category: str
    what: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """A memory peak, in bytes."""

    allocated: int
    reserved: int | None = None  # none where there is no caching allocator
    phase: str = ""  # phase of the step: 'forward', 'backward', 'optimizer'; 'other' if unknown
    parts: Mapping[str, int] = field(default_factory=dict)
    largest: tuple[LargeAllocation, ...] = ()  # without parameters and optimizer state
    activations: int = 0  # peak bytes saved for the backward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """The result of one case."""

    case: SweepCase
    status: Status
    measured: MemoryPeak | None = None
    predicted: MemoryPeak | None = None
    seconds: float = 0.0
    file: str = ""
    note: str = ""  # sentences on failures and changed settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Dimensions of a model."""

    size: str
    parameters: int
    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All cells of a sweep."""

    device: str
    cells: tuple[SweepCell, ...]
    models: Mapping[str, ModelFacts]
    notes: tuple[str, ...] = ()

    def cell(self, case: SweepCase) -> SweepCell | None:
        """The cell of a case, if any."""
        return next((cell for cell in self.cells if cell.case == case), None)


def file_stems(cases: tuple[SweepCase, ...]) -> Iterator[str]:
    """Shortest distinct file names of a sweep's cells, without suffix."""
    several_batches = len({case.batch for case in cases}) > 1
    several_precisions = any(case.precision != "fp32" for case in cases)
    for case in cases:
        batch = f"_batch{case.batch}" if several_batches else ""
        precision = f"_{case.precision}" if several_precisions else ""
        yield f"{case.size}_ctx{case.context}{batch}_{case.what}{precision}"
