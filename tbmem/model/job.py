"""Record of a training run to estimate: the model, its batch, how it is trained, and on which GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from tbmem.errors import UsageError
from tbmem.model.gpus import Compute, Gpu
from tbmem.units import GIB

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Floating-point types: torch's name by the short one; options take both."""
OPTIMIZERS = ("adamw", "adam", "sgd", "momentum", "adagrad", "rmsprop", "adafactor", "adamw8bit", "none")
IMPLEMENTATIONS = ("default", "foreach", "fused", "for-loop", "capturable")
SCHEDULES = ("1f1b", "gpipe")


class Option(NamedTuple):
    """A field that `tbmem estimate` and :func:`tbmem.estimate` take as an option."""

    help: str
    name: str = ""  # of the option, if not the field's name
    derived: bool = False  # whether its default follows from other options


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training run to estimate."""

    model: str  # a built-in name, 'package.module:factory', or the path of a Hugging Face config.json
    batch: Annotated[
        int,
        Option(
            "Samples of a step on one rank; by default the factory's default, else 1, or one for each microbatch.",
            derived=True,
        ),
    ] = 1
    sequence: Annotated[int | None, Option("Tokens of a sample; by default the model's own length.", "seq")] = None
    dtype: Annotated[
        str | None,
        Option("Of the parameters: fp32, bf16 or fp16; by default a config's or factory's own, else fp32."),
    ] = None
    amp: Annotated[str | None, Option("autocast to bf16 or fp16.")] = None
    optimizer: Annotated[str, Option("adamw, adam, sgd, momentum, adafactor, adamw8bit, none, ...")] = "adamw"
    implementation: Annotated[str, Option("default, foreach, fused, for-loop, capturable.")] = "default"
    """``'default'`` is torch's own choice, foreach on CUDA."""
    checkpoint: Annotated[bool, Option("Checkpoint each layer's activations.")] = False
    accumulate: Annotated[int, Option("Parts that a step's batch is cut into.")] = 1
    clip: Annotated[float | None, Option("Norm that gradients are clipped to.")] = None
    inference: Annotated[bool, Option("Only the forward pass, under torch.no_grad().")] = False
    inference_mode: Annotated[bool, Option("The same under torch.inference_mode().")] = False
    offload: Annotated[bool, Option("Optimizer state in host memory.")] = False
    world_size: Annotated[int, Option("Ranks in all; by default the product of the next.", derived=True)] = 1
    fsdp: Annotated[int, Option("Ranks that share the model's states.")] = 1
    replicate: Annotated[
        int,
        Option("Copies; with --fsdp copies of its groups; by default what --world-size leaves.", "ddp", derived=True),
    ] = 1
    tensor: Annotated[int, Option("Ranks that share each layer.", "tp")] = 1
    pipeline: Annotated[int, Option("Stages of a pipeline.", "pp")] = 1
    expert: Annotated[int, Option("Ranks that share the experts.", "ep")] = 1
    imbalance: Annotated[float, Option("Tokens that this rank's experts get, as a multiple of the average.")] = 1.0
    rank: Annotated[int, Option("Whose memory.")] = 0
    schedule: Annotated[str, Option("Of the pipeline: 1f1b or gpipe.")] = "1f1b"
    microbatches: Annotated[int | None, Option("Of a pipeline; by default twice its stages.")] = None
    steps: int = 2  # the first step allocates the optimizer's state, later ones are steady
    device: str = "cuda"  # 'cuda', or 'cpu' to compare with a real run
    instead: bool = False  # CPU tensors replace CUDA tensors: memory that only CPU kernels need does not count
    capability: tuple[int, int] = (9, 0)  # of the GPU: 9.0 is Hopper, 8.0 Ampere
    multiprocessors: int = 132
    total: int = 80 * GIB
    search_path: str | None = None  # folder added to sys.path to import a factory's module
    own_batch: bool = False  # the factory takes no batch and makes its own: ``batch`` says nothing
    given: str | None = None  # a file with the model that a Python program gave, for which ``model`` is a name only

    def __post_init__(self) -> None:
        for name in ("dtype", "amp"):
            is_fp8 = str(getattr(self, name)).lower().startswith(("fp8", "float8"))
            _require(not is_fp8, f"{name} is {getattr(self, name)!r}: {_FP8}")
        for name, allowed in _CHOICES.items():
            _check_choice(name, getattr(self, name), allowed)
        for name in _COUNTS:
            _require_one(name, getattr(self, name))
        limits = f"it must be above 0 and at most the {self.expert} expert ranks"
        _require(0 < self.imbalance <= self.expert, f"imbalance is {self.imbalance}; {limits}")
        _require(self.clip is None or self.clip > 0, f"clip is {self.clip}; it must be above 0")
        cut = f"a batch of {self.batch} cannot be cut into"
        _require(self.batch % self.accumulate == 0, f"{cut} {self.accumulate} equal parts")
        parts = self.replicate * self.fsdp * self.tensor * self.pipeline * self.expert
        layout = f"{self.replicate} copies x {self.fsdp} shards x {self.tensor} tensor x {self.pipeline} pipeline"
        layout = f"{layout} x {self.expert} expert ranks: these are {parts}; their product must be {self.world_size}"
        _require(parts == self.world_size, f"{self.world_size} ranks cannot be {layout}")
        is_plain = self.microbatches is None and self.schedule == SCHEDULES[0]
        advice = "say --pp, or --accumulate for parts of a batch"
        _require(self.pipeline > 1 or is_plain, f"schedule and microbatches are of a pipeline; {advice}")
        advice = "say --microbatches instead of --accumulate"
        _require(self.pipeline == 1 or self.accumulate == 1, f"a pipeline accumulates its microbatches; {advice}")
        _require(self.pipeline == 1 or self.batch % self.parts == 0, f"{cut} {self.parts} equal microbatches")
        ranks = f"the ranks 0 to {self.world_size - 1}"
        _require(0 <= self.rank < self.world_size, f"rank {self.rank} is not one of {ranks}")

    @classmethod
    def of(cls, model: str, search_path: str | None = None, **options: Any) -> Job:
        """Create a job from :func:`job_options`, ``None`` for not given; UsageError if they do not fit."""
        known = job_options()
        for name in options:
            _check_choice("option", name, tuple(known))
        given = {known[name][0]: value for name, value in options.items() if value is not None}
        given |= {name: torch_dtype(given[name]) for name in ("dtype", "amp") if name in given}
        given["inference"] = bool(given.get("inference") or given.get("inference_mode"))
        shared = math.prod(given.get(name, 1) for name in ("fsdp", "tensor", "pipeline", "expert"))
        # values below 1 are rejected by __post_init__
        copies = given.setdefault("replicate", max(given.get("world_size", shared) // max(shared, 1), 1))
        given.setdefault("world_size", shared * copies)
        given.setdefault("batch", _parts(given.get("pipeline", 1), given.get("microbatches"), 1))
        return cls(model=model, search_path=search_path, **given)

    def on(self, gpu: Gpu) -> Job:
        """The job on another GPU."""
        return replace(self, capability=gpu.capability, multiprocessors=gpu.multiprocessors, total=gpu.total)

    @property
    def compute(self) -> Compute:
        """Of the job's GPU."""
        return Compute(self.capability, self.multiprocessors)

    @property
    def parts(self) -> int:
        """Number of equal parts of a step's batch: microbatches of a pipeline, else accumulation steps."""
        return _parts(self.pipeline, self.microbatches, self.accumulate)


_FP8 = (
    "no model is trained in fp8 as a whole; a factory may create float8 tensors, which are counted (docs/estimate.md)"
)
_COUNTS = (
    *("batch", "sequence", "accumulate", "microbatches", "steps"),
    *("fsdp", "replicate", "tensor", "pipeline", "expert", "world_size"),
)
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "dtype": (None, *DTYPES.values()),
    "amp": (None, "bfloat16", "float16"),
    "optimizer": OPTIMIZERS,
    "implementation": IMPLEMENTATIONS,
    "schedule": SCHEDULES,
    "device": ("cuda", "cpu"),
}


def job_options() -> dict[str, tuple[str, Option]]:
    """By the option's name: its field, and the option."""
    hints = get_type_hints(Job, include_extras=True)
    options = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    return {option.name or field: (field, option) for field, option in options.items()}


def torch_dtype(name: str) -> str:
    """Torch's name of a type: ``'bfloat16'`` for ``'bf16'`` or ``'torch.bfloat16'``; what is no type stays."""
    word = name.lower().removeprefix("torch.")
    return DTYPES.get(word, word if word in DTYPES.values() else name)


def short_dtype(name: str) -> str:
    """The short name of a type: ``'bf16'`` for all that :func:`torch_dtype` takes; what is no type stays."""
    return next((short for short, word in DTYPES.items() if word == torch_dtype(name)), name)


def is_factory(model: str) -> bool:
    """Whether a model's name is that of a user's function."""
    return ":" in model and not Path(model).exists()


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UsageError(message)


def _require_one(field: str, value: int | None) -> None:
    """Raise UsageError for what is no whole number from 1 on; ``None`` leaves it open."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_number and value >= 1):
        option = next((name for name, (known, _) in job_options().items() if known == field), field)
        wanted = "1 or more" if is_number else "a whole number"
        raise UsageError(f"--{option.replace('_', '-')} is {value!r}; it must be {wanted}")


def _parts(stages: int, microbatches: int | None, accumulate: int) -> int:
    return (microbatches or 2 * stages) if stages > 1 else accumulate


def _check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    short = {full: f"{full} ({brief})" for brief, full in DTYPES.items()}
    words = ", ".join(short.get(str(word), str(word)) for word in allowed if word is not None)
    _require(value in allowed, f"{name} is {value!r}; there are {words}")
