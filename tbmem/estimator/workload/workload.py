"""Creates a job's model, batch and loss: built in, from a user's factory or from a config file."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tbmem.errors import UsageError, did_you_mean
from tbmem.estimator.factory_files import functions_in
from tbmem.estimator.workload.batches import call_model
from tbmem.estimator.workload.decoder import SHAPES, Decoder, DecoderShape, built_in_sizes
from tbmem.estimator.workload.given import Given, resized, unpacked
from tbmem.model.job import Job, is_factory

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""Owner and model."""
_OWNERS = {
    "albert-": "albert",
    "bert-": "google-bert",
    "distilbert-": "distilbert",
    "distilgpt2": "distilbert",
    "roberta-": "FacebookAI",
    "t5-": "google-t5",
    "xlm-": "FacebookAI",
    "xlnet-": "xlnet",
}
"""Owners of the hub's oldest models, which are widely known without one, by the beginning of their names."""
_KEYS = ("model", "batch", "loss", "optimizer", "step", "divided")


@dataclass(kw_only=True)
class Workload:
    """Model, batch and loss of a training run."""

    model: nn.Module
    batch: Any
    """Batch of one accumulation step or microbatch, on the host."""
    loss: Callable[[nn.Module, Any], torch.Tensor]
    """Runs the model on a batch, and computes the loss."""
    forward: Callable[[nn.Module, Any], Any] = call_model
    """Only runs the model."""
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    """Creates the user's own optimizer."""
    step: Callable[[nn.Module, Any, Any], Any] | None = None
    """The user's own step: ``step(model, batch, optimizer)``."""
    has_values: bool = False
    """Whether the batch has values of its own, not placeholders."""
    divided: bool = False
    """Whether the model already is one rank's part, by tensor, pipeline and expert parallelism of its own."""
    checkpoint: Callable[[], None] | None = None
    """Enables the model's own activation checkpointing."""
    typed: bool = False
    """Whether model and batch already have the job's dtype."""
    architecture: str = ""
    """Class and library of the model, or its layout, if its name does not say it."""
    sequence: int | None = None
    """Tokens of a sample, where that is known."""


def make_workload(job: Job) -> Workload:
    """Create the workload of a job.

    Raises:
        UsageError: There is no such model, or it is incomplete.
    """
    if job.given is not None:
        return _from_given(job, unpacked(Path(job.given).read_bytes()))
    if is_factory(job.model):
        where, _, name = job.model.rpartition(":")
        return _from_factory(job, _load(where, name, job))
    if job.model.endswith(".json"):
        return _from_config(job, Path(job.model))
    if (inside := Path(job.model, "config.json")).is_file():
        return _from_config(job, inside)
    if (shape := SHAPES.get(job.model.lower())) is not None:
        return _decoder(job, shape)
    if _HUB_NAME.fullmatch(job.model) and not Path(job.model).exists():
        from tbmem.estimator.workload.transformers_model import hub_config

        return _from_config(job, hub_config(job.model))
    if Path(job.model).is_dir():
        raise UsageError(f"--model {job.model}: this is a folder without a config.json")
    known = _on_the_hub(job.model) or did_you_mean(job.model, SHAPES) or f"there are {built_in_sizes()};"
    raise UsageError(
        f"--model {job.model}: {known} or name a factory as package.module:function, or a Hugging Face config.json, its"
        " folder, or owner/model on its hub"
    )


def _on_the_hub(name: str) -> str:
    """The whole name of a model that is known by its last part: ``bert-base-uncased``; empty of any other."""
    owner = next((owner for begin, owner in _OWNERS.items() if name.lower().startswith(begin)), None)
    return f"did you mean {owner}/{name}, on Hugging Face's hub?" if owner else ""


def dtype_of(name: str) -> torch.dtype:
    """Return torch's dtype of this name."""
    return getattr(torch, name)  # type: ignore[no-any-return]


def _decoder(job: Job, shape: DecoderShape) -> Workload:
    samples, length = job.batch // job.parts, job.sequence or shape.context
    if not shape.llama and length > shape.context:
        raise UsageError(f"--seq {length}: {job.model} has learnt positions for {shape.context} tokens only")
    numbers = torch.zeros(samples, length, dtype=torch.int64)
    return Workload(
        model=Decoder(shape),
        batch=(numbers, torch.zeros_like(numbers)),
        loss=_next_token_loss,
        forward=lambda model, batch: model(batch[0]),
        architecture=shape.about,
        sequence=length,
    )


def _next_token_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    numbers, targets = batch
    # in float32, as transformers' losses are
    return F.cross_entropy(model(numbers).float().flatten(0, 1), targets.flatten())


def _from_config(job: Job, path: Path) -> Workload:
    from tbmem.estimator.workload.transformers_model import enable_checkpointing, transformers_model

    dtype = None if job.dtype is None else dtype_of(job.dtype)
    model, batch, architecture = transformers_model(path, job, dtype)
    tokens = batch.get("input_ids")
    return Workload(
        model=model,
        batch=batch,
        loss=_loss_of(job.model, None),
        checkpoint=partial(enable_checkpointing, model, architecture),
        typed=True,
        has_values=True,
        architecture=architecture,
        sequence=None if tokens is None else tokens.shape[1],
    )


def _from_given(job: Job, given: Given) -> Workload:
    """What a Python program gave: a factory, or a module with its batch."""
    if not isinstance(given.model, nn.Module):
        made = _from_factory(job, given.model)
        return replace(
            made,
            loss=made.loss if given.loss is None else _loss_of(job.model, given.loss),
            optimizer=given.optimizer or made.optimizer,
            step=given.step or made.step,
        )
    return Workload(
        model=given.model,
        batch=resized(given.batch, job.batch // job.parts),
        loss=_loss_of(job.model, given.loss),
        optimizer=given.optimizer,
        step=given.step,
        has_values=True,
    )


def _from_factory(job: Job, factory: Callable[..., Any]) -> Workload:
    accepted = _parameters(factory)
    offered = {
        **{"batch": job.batch // job.parts, "sequence": job.sequence, "seq": job.sequence},
        **{"rank": job.rank, "world_size": job.world_size, "tp": job.tensor, "pp": job.pipeline, "ep": job.expert},
        "microbatches": job.parts,
    }
    given = {key: value for key, value in offered.items() if key in accepted and value is not None}
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = (key for key, value in accepted.items() if value.default is value.empty and value.kind not in any_number)
    if asked := [key for key in required if key not in given]:
        only_length = set(asked) <= {"seq", "sequence"}
        instead = "say --seq" if only_length else f"give it a default (given: {', '.join(offered)})"
        raise UsageError(f"--model {job.model}: the factory has parameters {', '.join(asked)}; {instead}")
    made = factory(**given)
    if isinstance(made, nn.Module):
        raise UsageError(f"--model {job.model}: the factory returns a model only; return (model, batch) or more")
    if isinstance(made, tuple):
        made = dict(zip(_KEYS, made, strict=False))
    if not isinstance(made, dict) or not isinstance(made.get("model"), nn.Module) or "batch" not in made:
        raise UsageError(
            f"--model {job.model}: return (model, batch[, loss[, optimizer[, step]]]) or a dict with these keys"
        )
    if isinstance(made["batch"], (torch.optim.Optimizer, nn.Module)) or inspect.isroutine(made["batch"]):
        got = type(made["batch"]).__name__
        raise UsageError(f"--model {job.model}: the second value that a factory returns is the batch; this is {got}")
    if unknown := set(made) - set(_KEYS):
        raise UsageError(f"--model {job.model}: {', '.join(sorted(unknown))}? There are {', '.join(_KEYS)}")
    return Workload(
        model=made["model"],
        batch=made["batch"],
        loss=_loss_of(job.model, made.get("loss")),
        forward=partial(call_model, has_loss=made.get("loss") is not None),
        optimizer=made.get("optimizer"),
        step=made.get("step"),
        has_values=True,
        divided=bool(made.get("divided")),
    )


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some C functions have no signature
        return {}


def _load(where: str, name: str, job: Job) -> Callable[..., Any]:
    folder, module = job.search_path or "", where
    if where.endswith(".py"):
        path = Path(folder, where)
        if not path.is_file():
            raise UsageError(f"--model {job.model}: there is no file {where}")
        folder, module = str(path.parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"--model {job.model}: {error}") from error
    factory = getattr(loaded, name, None)
    if not callable(factory):
        file = str(getattr(loaded, "__file__", None))
        known = f"; {functions_in(Path(file))}" if file.endswith(".py") else ""
        raise UsageError(f"--model {job.model}: {module} has no function {name}{known}")
    return factory  # type: ignore[no-any-return]


def _loss_of(what: str, loss: Callable[..., torch.Tensor] | None) -> Callable[[nn.Module, Any], torch.Tensor]:
    if loss is not None:
        _check_loss(what, loss)

    def run(model: nn.Module, batch: Any) -> torch.Tensor:
        output = call_model(model, batch, has_loss=loss is not None)
        if loss is not None:
            return _called(what, loss, output, batch)
        value = output
        if not isinstance(output, torch.Tensor):
            value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            instead = "give one, as the third value that a factory returns, or as loss=function in Python"
            raise UsageError(f"--model {what}: the model's output is no loss; {instead}")
        return value

    return run


def _called(what: str, loss: Callable[..., torch.Tensor], output: Any, batch: Any) -> torch.Tensor:
    try:
        return loss(output, _targets(batch) if _is_torchs(loss) else batch)
    except TypeError as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"--model {what}: the loss is called with the model's output and the whole batch; take the targets out of"
            f" it, as in lambda output, batch: F.cross_entropy(output, batch[1]) ({reason})"
        ) from error


def _is_torchs(loss: Any) -> bool:
    """Whether a loss is one of torch's own, which are called with the output and the targets."""
    return getattr(loss, "__module__", None) == "torch.nn.functional" or isinstance(loss, nn.modules.loss._Loss)


def _targets(batch: Any) -> Any:
    """The second of ``(inputs, targets)``, as of a DataLoader."""
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else batch


def _check_loss(what: str, loss: Any) -> None:
    if not callable(loss):
        raise UsageError(
            f"--model {what}: the loss is of type {type(loss).__name__}; give a function of (output, batch)"
        )
    if not (accepted := _parameters(loss)):
        return
    try:
        inspect.Signature(list(accepted.values())).bind(None, None)
    except TypeError as error:
        raise UsageError(
            f"--model {what}: the loss takes ({', '.join(accepted)}); it is called with (output, batch)"
        ) from error
