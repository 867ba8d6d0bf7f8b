"""Estimates the memory of a training run: of a named model, a function that makes one, or a module with a batch."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbmem.api.parameter_names import names_parameters
from tbmem.api.results import Estimate, as_result
from tbmem.errors import UsageError
from tbmem.model.job import Job

if TYPE_CHECKING:
    import torch

    from tbmem.analysis.estimates import fit
    from tbmem.estimator.workload.given import Given


@names_parameters
def estimate(
    model: str | os.PathLike[str] | torch.nn.Module | Callable[..., Any],
    batch: Any = None,
    *,
    loss: Callable[..., Any] | None = None,
    optimizer: str | Callable[..., Any] | torch.optim.Optimizer = "adamw",
    step: Callable[..., Any] | None = None,
    gpu: str | Sequence[str] = "h100-80gb",
    alloc_conf: str = "",
    alternatives: bool | None = None,
    out: str | os.PathLike[str] | None = None,
    variants: bool = False,
    seq: int | None = None,
    dtype: str | torch.dtype | None = None,
    amp: str | torch.dtype | None = None,
    implementation: str = "default",
    checkpoint: bool = False,
    accumulate: int = 1,
    clip: float | None = None,
    inference: bool = False,
    inference_mode: bool = False,
    offload: bool = False,
    world_size: int | None = None,
    fsdp: int = 1,
    ddp: int | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    imbalance: float = 1.0,
    rank: int = 0,
    schedule: str = "1f1b",
    microbatches: int | None = None,
) -> Estimate:
    """Estimate the memory of a training run without a GPU, as ``tbmem estimate`` does.

    The training step is executed on tensors without memory, in a process of its own: nothing of this one changes.

    Args:
        model: A built-in name (``'gpt2'``, ``'llama-7b'``), ``'package.module:factory'`` or ``'file.py:factory'``, the
            ``config.json`` of a Hugging Face model or its folder; a function that returns
            ``(model, batch[, loss[, optimizer[, step]]])``; or a module, on any device, for which ``batch`` is given.
        batch: With a module its inputs for one step: a tensor, or a tuple or dict that the module is called with. Else
            the samples of a step on one rank.
        loss: ``loss(output, batch)``; without one the model's output, or its ``.loss``, is the loss.
        optimizer: A name (``'adamw'``, ``'sgd'``, ``'none'``, ...), a function of the parameters, or an optimizer: one
            of its class with its defaults is made.
        step: A step of one's own: ``step(model, batch, optimizer)``.
        gpu: Name of the GPU, as ``'h100-80gb'``; of several names (or ``'all'``) the estimate is of the first, and
            ``gpus`` says for each whether it fits.
        alloc_conf: Value of PYTORCH_ALLOC_CONF.
        alternatives: Also estimate what would make it fit; ``None``: only where it does not.
        out: Folder in which a recording and the figures are written, for ``report``, ``compare`` and TensorBoard.
        variants: With ``out``: also other batches, checkpointing and allocator settings.
        seq: Tokens of a sample; by default the model's own length.
        dtype: Type of the parameters: ``'fp32'``, ``'bf16'``, ``'fp16'``, or torch's.
        amp: autocast to ``'bf16'`` or ``'fp16'``.
        implementation: Of the optimizer: ``'default'``, ``'foreach'``, ``'fused'``, ``'for-loop'``, ``'capturable'``.
        checkpoint: Checkpoint each layer's activations.
        accumulate: Parts that a step's batch is cut into.
        clip: Norm that gradients are clipped to.
        inference: Only the forward pass, under ``torch.no_grad()``.
        inference_mode: The same under ``torch.inference_mode()``.
        offload: Optimizer state in host memory.
        world_size: Ranks in all; by default the product of the next.
        fsdp: Ranks that share the model's states.
        ddp: Copies of the model, or of its groups of ranks.
        tp: Ranks that share each layer.
        pp: Stages of a pipeline.
        ep: Ranks that share the experts.
        imbalance: Tokens that this rank's experts get, as a multiple of the average.
        rank: The rank whose memory is estimated.
        schedule: Of the pipeline: ``'1f1b'`` or ``'gpipe'``.
        microbatches: Of a pipeline; by default twice its stages.

    Returns:
        Peaks in bytes with their expected ranges, what they consist of, whether they fit each GPU, and alternatives.

    Raises:
        UsageError: The training run cannot be executed, an option does not fit, or there is no such model or GPU.
        ConfigError: ``alloc_conf`` is not valid.
        OSError: ``out`` cannot be written.
    """
    if variants and out is None:
        raise UsageError("variants are written into the estimate's files; say where by --out DIR")
    options = {
        **{"seq": seq, "dtype": _name(dtype), "amp": _name(amp), "implementation": implementation},
        **{"checkpoint": checkpoint, "accumulate": accumulate, "clip": clip, "inference": inference},
        **{"inference_mode": inference_mode, "offload": offload, "world_size": world_size, "fsdp": fsdp, "ddp": ddp},
        **{"tp": tp, "pp": pp, "ep": ep, "imbalance": imbalance, "rank": rank, "schedule": schedule},
        **{"microbatches": microbatches, "optimizer": optimizer if isinstance(optimizer, str) else None},
    }
    own = None if isinstance(optimizer, str) else optimizer
    with _job(model, batch, (loss, own, step), options) as job:
        return _estimated(job, gpu, alloc_conf, alternatives, out, variants)


@contextmanager
def _job(model: Any, batch: Any, more: tuple[Any, Any, Any], options: dict[str, Any]) -> Iterator[Job]:
    """The job; what was given rather than named lies in a file while it is executed."""
    if isinstance(model, (str, os.PathLike)):
        if any(each is not None for each in more):
            raise UsageError(
                f"{os.fspath(model)}: loss, step and an optimizer of one's own belong to a module or a function, not to"
                " a name; have the factory return them"
            )
        from tbmem.estimator.factory_files import default_batch, takes_no_batch

        name, samples = os.fspath(model), _samples(batch)
        has_own = takes_no_batch(name, os.getcwd())
        _check_batch(name, samples, has_own)
        if samples is None:
            samples = _factorys_own(default_batch(name, os.getcwd()), options)
        yield replace(Job.of(name, os.getcwd(), batch=samples, **options), own_batch=has_own)
        return
    given, samples = _given(model, batch, more, options)
    has_own = _has_own_batch(model)
    _check_batch(given.name, samples, has_own)
    with tempfile.TemporaryDirectory(prefix="tbmem-given-") as folder:
        path = Path(folder, "given")
        path.write_bytes(given.packed())
        job = Job.of(given.name, os.getcwd(), batch=samples, **options)
        yield replace(job, given=str(path), own_batch=has_own)


def _check_batch(name: str, samples: int | None, has_own: bool) -> None:
    if samples is not None and has_own:
        raise UsageError(f"{name} has no parameter batch, so a batch of {samples} cannot reach it: give it one")


def _has_own_batch(model: Any) -> bool:
    """Whether a function that makes the model has no parameter for the batch."""
    import torch

    if isinstance(model, torch.nn.Module):
        return False
    parameters = inspect.signature(model).parameters
    return "batch" not in parameters and all(each.kind is not each.VAR_KEYWORD for each in parameters.values())


def _given(model: Any, batch: Any, more: tuple[Any, Any, Any], options: dict[str, Any]) -> tuple[Given, int | None]:
    """What was given instead of a name, and its samples."""
    import torch

    from tbmem.estimator.workload.given import Given

    if not isinstance(model, torch.nn.Module):
        if not callable(model):
            raise UsageError(
                f"model is of type {type(model).__name__}; give a name, a function that makes it, or a module"
            )
        parameter = inspect.signature(model).parameters.get("batch")
        default = parameter.default if parameter is not None and type(parameter.default) is int else None
        return Given(model, None, *more), _samples(batch) or _factorys_own(default, options)
    if batch is None or isinstance(batch, (int, str)):
        raise UsageError(
            f"{type(model).__name__}: say what it is called with: estimate(model, batch), tensors or a dict"
        )
    given = Given(model, batch, *more)
    return given, given.samples


def _factorys_own(batch: int | None, options: dict[str, Any]) -> int | None:
    """A factory's own batch, where it can be cut into the parts of a step; in a pipeline it is that of a microbatch."""
    is_whole = batch is not None and options["pp"] in (None, 1) and batch % (options["accumulate"] or 1) == 0
    return batch if is_whole else None


def _samples(batch: Any) -> int | None:
    if batch is not None and (not isinstance(batch, int) or isinstance(batch, bool)):
        raise UsageError(
            f"batch is of type {type(batch).__name__}: the samples of a step (a number), or with a module its inputs"
        )
    return batch


def _name(dtype: str | torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype)


def _estimated(
    job: Job,
    gpu: str | Sequence[str],
    alloc_conf: str,
    alternatives: bool | None,
    out: str | os.PathLike[str] | None,
    variants: bool,
) -> Estimate:
    from tbmem.estimator.estimate import estimate_job, write_estimate
    from tbmem.estimator.variants import variants_of

    result, run = estimate_job(job, gpu, alloc_conf, alternatives)
    more = variants_of(result) if variants else ()
    result = _without_file(result)
    written = write_estimate(out, result, run, more) if out is not None else []
    return as_result(Estimate, result, files=tuple(map(str, written)))


def _without_file(result: fit.Estimate) -> fit.Estimate:
    """The estimate without the path of a file that is removed."""
    return replace(result, job=replace(result.job, given=None))
