"""What to estimate, as plain values: a model, a batch, how it is trained, on which GPU; JSON in, JSON out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tbmem.errors import UsageError
from tbmem.units import GIB

DTYPES = ("float32", "bfloat16", "float16")
OPTIMIZERS = ("adamw", "adam", "sgd", "momentum", "adagrad", "rmsprop", "adafactor", "adamw8bit", "none")
IMPLEMENTATIONS = ("default", "foreach", "fused", "for-loop", "capturable")
SCHEDULES = ("1f1b", "gpipe")
_FLAGS = {"replicate": "--ddp", "tensor": "--tp", "pipeline": "--pp", "expert": "--ep"}
"""What fields are called on the command line, where that is not obvious."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training to estimate."""

    model: str
    """A built-in name, ``'package.module:factory'``, or the path of a Hugging Face ``config.json``."""
    batch: int = 1
    """Samples of a step on one rank, over all accumulated parts."""
    sequence: int | None = None
    """Tokens of a sample; the model's own length if not given."""
    dtype: str | None = None
    """Of parameters; with ``amp`` they stay in this and operators run in that. ``None``: as the factory makes them, the
    config's own, else float32."""
    amp: str | None = None
    """autocast's type."""
    optimizer: str = "adamw"
    implementation: str = "default"
    """Of the optimizer: torch's default (foreach on CUDA), foreach, fused, for-loop, capturable."""
    checkpoint: bool = False
    """Activation checkpointing around each layer."""
    accumulate: int = 1
    """Parts that a step's batch is cut into."""
    clip: float | None = None
    """Norm that gradients are clipped to."""
    inference: bool = False
    """Only forward, without gradients."""
    offload: bool = False
    """Optimizer state in host memory."""
    steps: int = 2
    """The first makes the optimizer's state, later ones are steady."""
    device: str = "cuda"
    """``'cuda'``, or ``'cpu'`` to compare with what really runs there."""
    instead: bool = False
    """Tensors of the CPU stand for a GPU's: what only the CPU's kernels need does not count."""
    capability: tuple[int, int] = (9, 0)
    """Of the GPU: 9.0 is Hopper, 8.0 Ampere."""
    total: int = 80 * GIB
    """Bytes of the GPU."""
    world_size: int = 1
    rank: int = 0
    fsdp: int = 1
    """Ranks that share parameters, gradients and optimizer state."""
    replicate: int = 1
    """Copies of these groups: DDP, or HSDP together with ``fsdp``."""
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    imbalance: float = 1.0
    """Tokens that this rank's experts get, as a multiple of the average."""
    schedule: str = "1f1b"
    microbatches: int | None = None
    """Of a pipeline's step; twice its stages if not given."""
    search_path: str | None = None
    """Folder in which a factory's module is looked for, besides Python's own."""

    def __post_init__(self) -> None:
        _one_of("dtype", self.dtype, (None, *DTYPES))
        _one_of("amp", self.amp, (None, *DTYPES[1:]))
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("implementation", self.implementation, IMPLEMENTATIONS)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("device", self.device, ("cuda", "cpu"))
        for name in ("batch", "accumulate", "steps", "fsdp", "replicate", "tensor", "pipeline", "expert", "world_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{_FLAGS.get(name, name)} is {getattr(self, name)}; it must be 1 or more")
        for name in ("sequence", "microbatches"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")
        if not 0 < self.imbalance <= self.expert:
            raise UsageError(
                f"imbalance is {self.imbalance}; it must be above 0 and at most the {self.expert} expert ranks"
            )
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip is {self.clip}; it must be above 0")
        if self.batch % self.accumulate:
            raise UsageError(f"a batch of {self.batch} cannot be cut into {self.accumulate} equal parts")
        parts = self.replicate * self.fsdp * self.tensor * self.pipeline * self.expert
        if parts != self.world_size:
            raise UsageError(
                f"{self.world_size} ranks cannot be {self.replicate} copies x {self.fsdp} shards x {self.tensor} tensor"
                f" x {self.pipeline} pipeline x {self.expert} expert ranks: these are {parts}"
            )
        if self.pipeline == 1 and (self.microbatches is not None or self.schedule != SCHEDULES[0]):
            raise UsageError(
                "schedule and microbatches are of a pipeline; say --pp, or --accumulate for parts of a batch"
            )
        if self.pipeline > 1 and self.accumulate > 1:
            raise UsageError("a pipeline accumulates its microbatches; say --microbatches instead of --accumulate")
        if self.pipeline > 1 and self.batch % self.parts:
            raise UsageError(f"a batch of {self.batch} cannot be cut into {self.parts} equal microbatches")
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank {self.rank} is not one of the ranks 0 to {self.world_size - 1}")

    @property
    def parts(self) -> int:
        """Into how many equal parts a step's batch is cut."""
        return parts_of_a_step(self.pipeline, self.microbatches, self.accumulate)

    def to_json(self) -> str:
        """All fields as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that :meth:`to_json` wrote."""
        given = json.loads(text)
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in given.items() if name in known}
        given["capability"] = tuple(given["capability"])
        return cls(**given)


def parts_of_a_step(stages: int, microbatches: int | None, accumulate: int) -> int:
    """Into how many equal parts a step's batch is cut: the microbatches of a pipeline, else those that accumulate."""
    if stages > 1:
        return microbatches or 2 * stages
    return accumulate


def is_factory(model: str) -> bool:
    """Whether a model's name is that of a function of the user's."""
    return ":" in model and not Path(model).exists()


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        words = ", ".join(str(word) for word in allowed if word is not None)
        raise UsageError(f"{name} is {value!r}; there are {words}")
