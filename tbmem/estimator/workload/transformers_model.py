"""Builds the model of a Hugging Face ``config.json`` without weights, and a batch for it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tbmem.errors import UsageError
from tbmem.estimator.workload.decoder import SHAPES
from tbmem.model.job import Job

Tensors = dict[str, torch.Tensor]
_LONGEST_REASON = 300
_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length")


class TransformersModel(NamedTuple):
    """A model and its batch."""

    model: Any
    batch: Tensors
    architecture: str
    """Its class and library."""

    def checkpoint(self) -> None:
        """Enable the model's own activation checkpointing.

        Raises:
            UsageError: It has none.
        """
        # the name in transformers 4, where reentrant checkpointing is the default
        enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
        try:
            enable({"use_reentrant": False})
        except ValueError as error:
            raise UsageError(
                f"--checkpoint: {self.architecture} has no checkpointing of its own; leave it out, or write a factory"
            ) from error


def transformers_model(path: Path, job: Job, dtype: torch.dtype | None) -> TransformersModel:
    """Build the model of a config.

    Args:
        path: Of the config.
        job: The training run.
        dtype: Of the parameters; ``None``: the config's own, or float32.

    Raises:
        UsageError: The file is not a model's config, transformers is not installed or does not have the model, or its
            batch is not known.
    """
    config = _read(path)
    transformers = _transformers(path)
    kind = config["model_type"]
    task = _task(path, config, transformers)
    dtype = dtype or _dtype(path, config)
    # versions 4 and 5 both read torch_dtype; remote code (auto_map) is not run
    given = {name: value for name, value in config.items() if name not in ("dtype", "auto_map")}
    given["torch_dtype"] = str(dtype).removeprefix("torch.")
    with _explained(path, transformers):
        settings = transformers.CONFIG_MAPPING[kind].from_dict(given)
    if any(hasattr(settings, part) for part in ("vision_config", "audio_config")):
        raise UsageError(
            f"--model {path}: {kind} takes images or sound beside text, and the config does not say how much of it;"
            " write a factory, or give the text_config as a file of its own for the language model alone"
        )
    # required token ids, of which any will do
    if getattr(settings, "is_encoder_decoder", False) and getattr(settings, "decoder_start_token_id", None) is None:
        settings.decoder_start_token_id = 0
    if getattr(settings, "pad_token_id", None) is None:
        settings.pad_token_id = 0
    with _explained(path, transformers):
        model = getattr(transformers, task.maker).from_config(settings)
    batch = _Batch(path, model, settings, job, dtype).tensors(task)
    return TransformersModel(model, batch, f"{type(model).__name__} of transformers {transformers.__version__}")


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not JSON: {error}"
        raise UsageError(f"--model {path}: {reason}") from error
    if not isinstance(config, dict):
        raise UsageError(f"--model {path}: not the config.json of a model")
    if not isinstance(config.get("model_type"), str):
        raise UsageError(f"--model {path}: model_type is missing, which says what kind of model it is")
    if config.get("quantization_config") is not None:
        raise UsageError(
            f"--model {path}: quantization_config: memory of quantized weights is not estimated; write a factory, or"
            " take it out for the model without quantization"
        )
    return config


def _transformers(path: Path) -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"--model {path}: transformers builds the model of a config, and cannot be imported ({error}): pip install"
            f" transformers; or name a built-in decoder: {', '.join(SHAPES)}"
        ) from error


def _task(path: Path, config: Mapping[str, Any], transformers: Any) -> _Task:
    """The task of the config's architecture; without one the first task of its model type."""
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
    for task in _TASKS:
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


@contextmanager
def _explained(path: Path, transformers: Any) -> Iterator[None]:
    """Raise errors of transformers about a config as a UsageError of one line."""
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


@dataclass(frozen=True)
class _Batch:
    """Creates the tensors of a batch."""

    path: Path
    model: nn.Module
    settings: Any
    """transformers' config."""
    job: Job
    dtype: torch.dtype
    """Of the parameters."""

    def tensors(self, task: _Task) -> Tensors:
        """Tensors by the model's argument names; for inference without labels."""
        inputs = task.inputs(self)
        if not self.job.inference:
            return {**inputs, **task.targets(self, inputs)}
        if getattr(self.settings, "is_encoder_decoder", False):
            return {**inputs, "decoder_input_ids": inputs["input_ids"].clone()}
        return inputs

    @property
    def count(self) -> int:
        """Samples."""
        return self.job.batch // self.job.parts

    def tokens(self) -> Tensors:
        """Token ids, none of them padding."""
        token = 1 if getattr(self.settings, "pad_token_id", None) == 0 else 0
        return {"input_ids": torch.full((self.count, self._length()), token)}

    def images(self) -> Tensors:
        """Images of the config's size."""
        if self.job.sequence is not None:
            raise UsageError(
                f"--seq {self.job.sequence}: {self.path} is a model of images, which have no tokens; leave it out"
            )
        size, channels = getattr(self.settings, "image_size", None), getattr(self.settings, "num_channels", 3)
        sides = (size, size) if isinstance(size, int) else size
        if not isinstance(sides, (list, tuple)) or len(sides) != 2:
            raise UsageError(
                f"--model {self.path}: it has no image_size, the pixels of a side; add it, or write a factory"
            )
        return {"pixel_values": torch.zeros(self.count, channels, *sides, dtype=self.dtype)}

    def main_input(self) -> Tensors:
        """The main input of a model without a head."""
        input_name = getattr(self.model, "main_input_name", "")
        if input_name not in ("input_ids", "pixel_values"):
            raise UsageError(
                f"--model {self.path}: {type(self.model).__name__} takes {input_name}, whose size the config does not"
                " say; write a factory"
            )
        return self.tokens() if input_name == "input_ids" else self.images()

    def token_labels(self, inputs: Tensors) -> Tensors:
        """Labels of language models."""
        return {"labels": inputs["input_ids"].clone()}

    def tags(self, inputs: Tensors) -> Tensors:
        """Labels of tokens."""
        return {"labels": torch.zeros_like(inputs["input_ids"])}

    def classes(self, _: Tensors) -> Tensors:
        """Labels of samples, of the kind of problem that the config names."""
        count, problem = self.settings.num_labels, self.settings.problem_type
        if problem == "multi_label_classification" or (problem == "regression" and count > 1):
            return {"labels": torch.zeros(self.count, count, dtype=self.dtype)}
        numbers = problem == "regression" or (problem is None and count == 1)
        return {"labels": torch.zeros(self.count, dtype=self.dtype if numbers else torch.int64)}

    def ends(self, _: Tensors) -> Tensors:
        """Where answers begin and end."""
        return {name: torch.zeros(self.count, dtype=torch.int64) for name in ("start_positions", "end_positions")}

    def pixels(self, inputs: Tensors) -> Tensors:
        """Labels of pixels."""
        sides = inputs["pixel_values"].shape[-2:]
        return {"labels": torch.zeros(self.count, *sides, dtype=torch.int64)}

    def no_targets(self, _: Tensors) -> Tensors:
        """Raise: a model without a head has no loss."""
        raise UsageError(
            f"--model {self.path}: {type(self.model).__name__} has no loss of its own; name a class with a head in"
            " architectures, say --inference, or write a factory"
        )

    def _length(self) -> int:
        named = ((name.rpartition(".")[2], part) for name, part in self.model.named_modules())
        tables = [
            part for name, part in named if isinstance(part, nn.Embedding) and ("position" in name or name == "wpe")
        ]
        length, longest = self.job.sequence, self._longest(tables)
        if length is None and longest is None:
            raise UsageError(f"--model {self.path}: it does not say how many tokens a sample has; say --seq")
        if length is not None and longest is not None and length > longest and tables:
            raise UsageError(f"--seq {length}: {self.path} has learnt positions for {longest} tokens only")
        return length or longest or 0

    def _longest(self, tables: list[nn.Embedding]) -> int | None:
        names = (getattr(self.settings, name, None) for name in _LENGTHS)
        longest = next((value for value in names if isinstance(value, int)), None)
        # RoBERTa's positions begin after the padding index
        unused = [table.padding_idx + 1 for table in tables if table.padding_idx is not None]
        return longest - max(unused, default=0) if longest is not None else None


class _Task(NamedTuple):
    """A training task."""

    models: str
    """Transformers' table of the models for it: ``MODEL_<models>MAPPING_NAMES``."""
    maker: str
    """The class that builds them."""
    inputs: Callable[[_Batch], Tensors]
    """What the model is run on."""
    targets: Callable[[_Batch, Tensors], Tensors]
    """What its loss is computed with, beside the inputs."""


_TASKS = (
    _Task("FOR_SEQ_TO_SEQ_CAUSAL_LM_", "AutoModelForSeq2SeqLM", _Batch.tokens, _Batch.token_labels),
    _Task("FOR_MASKED_LM_", "AutoModelForMaskedLM", _Batch.tokens, _Batch.token_labels),
    _Task("FOR_CAUSAL_LM_", "AutoModelForCausalLM", _Batch.tokens, _Batch.token_labels),
    _Task("FOR_SEQUENCE_CLASSIFICATION_", "AutoModelForSequenceClassification", _Batch.tokens, _Batch.classes),
    _Task("FOR_TOKEN_CLASSIFICATION_", "AutoModelForTokenClassification", _Batch.tokens, _Batch.tags),
    _Task("FOR_QUESTION_ANSWERING_", "AutoModelForQuestionAnswering", _Batch.tokens, _Batch.ends),
    _Task("FOR_IMAGE_CLASSIFICATION_", "AutoModelForImageClassification", _Batch.images, _Batch.classes),
    _Task("FOR_SEMANTIC_SEGMENTATION_", "AutoModelForSemanticSegmentation", _Batch.images, _Batch.pixels),
    _Task("", "AutoModel", _Batch.main_input, _Batch.no_targets),
)
"""A config without an architecture gets the first task that supports its model type."""
