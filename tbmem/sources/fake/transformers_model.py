"""The model that transformers makes of a Hugging Face config, without weights, and a batch for it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tbmem.errors import UsageError
from tbmem.model.job import Job
from tbmem.sources.fake.decoder import SHAPES
from tbmem.sources.fake.transformers_tasks import TASKS, Sample, Task, Tensors, batch_of

_LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class TransformersModel:
    """A model in the type that was asked for, and what it is trained on."""

    model: Any
    batch: Tensors
    architecture: str
    """Its class, and whose it is."""

    def checkpoint(self) -> None:
        """Switch on the model's own activation checkpointing.

        Raises:
            UsageError: It has none.
        """
        # the name of transformers 4; and there it would be reentrant unless told otherwise
        enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
        try:
            enable({"use_reentrant": False})
        except ValueError as error:
            raise UsageError(
                f"--checkpoint: {self.architecture} has no checkpointing of its own; leave it out, or write a factory"
            ) from error


def transformers_model(path: Path, config: Mapping[str, Any], job: Job, dtype: torch.dtype | None) -> TransformersModel:
    """Build the model of a config.

    Args:
        path: Of the config; for messages.
        config: Its contents, with a ``model_type``.
        job: What to do with it.
        dtype: Of its parameters; ``None``: that which the config names, or float32.

    Raises:
        UsageError: transformers is not there, has no such model, or none whose batch can be made up.
    """
    transformers = _transformers(path)
    kind = config["model_type"]
    task = _task(path, config, transformers)
    dtype = dtype or _dtype(path, config)
    # versions 4 and 5 both read torch_dtype; code of the config's own is not run
    given = {name: value for name, value in config.items() if name not in ("dtype", "auto_map")}
    given["torch_dtype"] = str(dtype).removeprefix("torch.")
    with _explained(path, transformers):
        settings = transformers.CONFIG_MAPPING[kind].from_dict(given)
    if any(hasattr(settings, part) for part in ("vision_config", "audio_config")):
        raise UsageError(
            f"--model {path}: {kind} takes images or sound beside text, and the config does not say how much of it;"
            " write a factory, or give the text_config as a file of its own for the language model alone"
        )
    _fill_in(settings)
    with _explained(path, transformers):
        model = getattr(transformers, task.maker).from_config(settings)
    sample = Sample(
        path=path,
        model=model,
        settings=settings,
        count=job.batch // job.parts,
        length=job.sequence,
        dtype=dtype,
    )
    return TransformersModel(
        model=model,
        batch=batch_of(task, sample, job.inference),
        architecture=f"{type(model).__name__} of transformers {transformers.__version__}",
    )


def _transformers(path: Path) -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"--model {path}: transformers builds the model of a config, and cannot be imported ({error}): pip install"
            f" transformers; or name a built-in decoder: {', '.join(SHAPES)}"
        ) from error


def _task(path: Path, config: Mapping[str, Any], transformers: Any) -> Task:
    """What the class that the config names is for; without one, what its kind of model is for first of all."""
    kind, named = config["model_type"], config.get("architectures")
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    known = kind in transformers.CONFIG_MAPPING
    architecture = named[0] if isinstance(named, list) and named else None
    if not known or (architecture is not None and not hasattr(transformers, str(architecture))):
        what = f"class {architecture}" if known else f"{kind} models"
        advice = "its code lies beside the config (auto_map) and is not run; " * bool(config.get("auto_map"))
        raise UsageError(
            f"--model {path}: transformers {transformers.__version__} has no {what}; {advice}write a factory"
        )
    for task in TASKS:
        classes = getattr(tables, f"MODEL_{task.models}MAPPING_NAMES").get(kind, ())
        classes = (classes,) if isinstance(classes, str) else classes
        if architecture in classes or (architecture is None and classes):
            return task
    what = architecture or f"a {kind} model"
    raise UsageError(
        f"--model {path}: {what} does not learn from tokens or images and labels alone; write a factory that returns"
        " its batch"
    )


def _dtype(path: Path, config: Mapping[str, Any]) -> torch.dtype:
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    dtype = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize == 1:
        raise UsageError(f"--model {path}: its dtype is {name!r}; say --dtype float32, bfloat16 or float16")
    return dtype


def _fill_in(settings: Any) -> None:
    """Tokens that are numbers only, and which the model asks for: any will do."""
    if getattr(settings, "is_encoder_decoder", False) and getattr(settings, "decoder_start_token_id", None) is None:
        settings.decoder_start_token_id = 0
    if getattr(settings, "pad_token_id", None) is None:
        settings.pad_token_id = 0


@contextmanager
def _explained(path: Path, transformers: Any) -> Iterator[None]:
    """Whatever transformers says of a config's values, as one line."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith(("torch", "tbmem")):
            # about fake tensors, not about the config
            raise
        reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
        raise UsageError(
            f"--model {path}: transformers {transformers.__version__} cannot build it: {reason}"
        ) from error
