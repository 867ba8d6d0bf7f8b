"""What a training will need, as one frozen record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tbmem.model.job import Job


class Fit(str, Enum):
    """Whether it will fit."""

    FITS = "fits"
    TIGHT = "tight"
    """Within what the estimate may be wrong by."""
    NO = "does_not_fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """parameters + optimizer state + max(gradients + its intermediates, activations), with this model's bytes."""

    parameters: int
    optimizer: int
    gradients: int
    intermediates: int
    """Most temporary bytes of the optimizer's step."""
    activations: int
    """What the backward pass finds, batch included."""

    @property
    def total(self) -> int:
        """The formula's value, in bytes."""
        return self.parameters + self.optimizer + max(self.gradients + self.intermediates, self.activations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The same training with one thing changed; bytes."""

    change: str
    allocated: int
    reserved: int
    fit: Fit
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What came out; bytes unless named otherwise."""

    job: Job
    gpu: str
    settings: str
    """What PYTORCH_ALLOC_CONF was taken to say."""
    peak_allocated: int
    peak_reserved: int
    allocated_range: tuple[int, int]
    """Between these the true value is expected."""
    reserved_range: tuple[int, int]
    """The same of reserved bytes."""
    peak_step: int
    peak_phase: str
    first_step: int
    """Allocated peak of the first step, which makes the optimizer's state."""
    steady_step: int
    """Allocated peak of the last."""
    by_phase: Mapping[str, int]
    """Allocated peak of each phase in the last step."""
    by_category: Mapping[str, int]
    """What the allocated peak is made of."""
    by_module: Mapping[str, int]
    """The same by module; layers that are alike are one entry, ``layers.*``."""
    formula: Formula
    outside: Mapping[str, int]
    """What is not in the allocator's figures."""
    capacity: int
    fit: Fit
    sentence: str
    """The verdict for a person."""
    fragmented: int
    """At the end: reserved, free, and only in pieces."""
    notes: tuple[str, ...] = ()
    parameters: int = 0
    """How many there are."""
    dtype: str = ""
    """Of most of their bytes."""
    architecture: str = ""
    """What a config file stands for: ``'LlamaForCausalLM of transformers 5.23.0'``."""
    seconds: float = 0.0
    """That the execution took."""
    executed: str = ""
    """How: on which kind of fake tensors, with which torch."""
    alternatives: tuple[Alternative, ...] = field(default=())
