"""Builds the model of a Hugging Face ``config.json`` without weights, and a batch for it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tbmem.errors import FileFormatError, UsageError, first_line
from tbmem.estimator.refusals import REHEARSE
from tbmem.estimator.workload.decoder import built_in_sizes
from tbmem.model.job import Job
from tbmem.model.json_values import read_json
from tbmem.model.progress import progress
from tbmem.regular_files import read_regular

Tensors = dict[str, torch.Tensor]
_LONGEST_REASON = 300
_LAYERS = ("layer", "layers")
_MOST_LAYERS = 1000
"""Layers of a model; a config's class makes lists of this length."""
_LARGEST = 1 << 40
"""The largest number that a config is taken to mean; beyond it products of sizes overflow in torch."""
_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length")


def transformers_model(path: Path, job: Job, dtype: torch.dtype | None) -> tuple[Any, Tensors, str]:
    """Build the model of a config; ``dtype`` of the parameters ``None``: the config's own, or float32.

    Returns:
        The model; its batch; its class and library.

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
    return model, batch, f"{type(model).__name__} of transformers {transformers.__version__}"


def enable_checkpointing(model: Any, architecture: str) -> None:
    """Enable the model's own activation checkpointing.

    Raises:
        UsageError: It has none.
    """
    # the name in transformers 4, where reentrant checkpointing is the default
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise UsageError(
            f"--checkpoint: {architecture} has no checkpointing of its own; leave it out, or write a factory"
        ) from error


def hub_config(name: str) -> Path:
    """The config of a model by its name on Hugging Face's hub, from the local cache or downloaded.

    Raises:
        UsageError: transformers is not installed, or there is no such file.
    """
    _transformers(Path(name))
    progress("asking Hugging Face's hub for its config.json")
    try:
        path = Path(importlib.import_module("transformers.utils.hub").cached_file(name, "config.json"))
        progress("")
        return path
    except Exception as error:  # of the hub, of HTTP, of the network
        reason = first_line(error)[:_LONGEST_REASON]
        raise UsageError(
            f"--model {name}: its config.json is not in the local cache of Hugging Face's hub and was not downloaded"
            f" ({reason}); give the path of a config.json"
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        config = read_json(read_regular(path))
    except FileFormatError as error:
        raise UsageError(f"--model {error}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not JSON: {error}"
        raise UsageError(f"--model {path}: {reason}") from error
    if not isinstance(config, dict):
        raise UsageError(f"--model {path}: not the config.json of a model")
    if not isinstance(config.get("model_type"), str):
        raise UsageError(f"--model {path}: model_type is missing, which says what kind of model it is")
    for key, value in config.items():
        if key.endswith(_LAYERS) and _number(value) > _MOST_LAYERS:
            raise UsageError(f"--model {path}: {key}: {value} layers; at most {_MOST_LAYERS} are built")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise UsageError(f"--model {path}: {key}: {str(value)[:20]} is beyond the sizes of any model")
    if config.get("quantization_config") is not None:
        raise UsageError(
            f"--model {path}: quantization_config: memory of quantized weights is not estimated; take it out for the"
            f" model without quantization, or {REHEARSE}"
        )
    return config


def _number(value: Any) -> float:
    """A value as a number, as transformers takes it, texts as well; 0 if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _transformers(path: Path) -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"--model {path}: transformers builds the model of a config, and cannot be imported ({error}): pip install"
            f" transformers; or name a built-in decoder: {built_in_sizes()}"
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
        inputs = self._inputs(task.inputs)
        if not self.job.inference:
            return {**inputs, **self._labels(task.labels, inputs)}
        if getattr(self.settings, "is_encoder_decoder", False):
            return {**inputs, "decoder_input_ids": inputs["input_ids"].clone()}
        return inputs

    @property
    def _count(self) -> int:
        """Samples."""
        return self.job.batch // self.job.parts

    def _inputs(self, name: str) -> Tensors:
        """Token ids, none of them padding, or images; without a name the main input of a model without a head."""
        name = name or getattr(self.model, "main_input_name", "")
        if name == "pixel_values":
            return self._images()
        if name != "input_ids":
            raise UsageError(
                f"--model {self.path}: {type(self.model).__name__} takes {name}, whose size the config does not say;"
                " write a factory"
            )
        token = 1 if getattr(self.settings, "pad_token_id", None) == 0 else 0
        return {"input_ids": torch.full((self._count, self._length()), token)}

    def _images(self) -> Tensors:
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
        return {"pixel_values": torch.zeros(self._count, channels, *sides, dtype=self.dtype)}

    def _labels(self, kind: str, inputs: Tensors) -> Tensors:
        """What the loss is computed with, beside the inputs."""
        count = self._count
        if kind == "tokens":
            return {"labels": inputs["input_ids"].clone()}
        if kind == "tags":
            return {"labels": torch.zeros_like(inputs["input_ids"])}
        if kind == "pixels":
            return {"labels": torch.zeros(count, *inputs["pixel_values"].shape[-2:], dtype=torch.int64)}
        if kind == "spans":
            return {name: torch.zeros(count, dtype=torch.int64) for name in ("start_positions", "end_positions")}
        if kind == "classes":
            return {"labels": self._classes()}
        raise UsageError(
            f"--model {self.path}: {type(self.model).__name__} has no loss of its own; name a class with a head in"
            " architectures, say --inference, or write a factory"
        )

    def _classes(self) -> torch.Tensor:
        """Labels of samples, of the kind of problem that the config names."""
        classes, problem = self.settings.num_labels, self.settings.problem_type
        if problem == "multi_label_classification" or (problem == "regression" and classes > 1):
            return torch.zeros(self._count, classes, dtype=self.dtype)
        is_number = problem == "regression" or (problem is None and classes == 1)
        return torch.zeros(self._count, dtype=self.dtype if is_number else torch.int64)

    def _length(self) -> int:
        named = ((name.rpartition(".")[2], part) for name, part in self.model.named_modules())
        tables = [
            part for name, part in named if isinstance(part, nn.Embedding) and ("position" in name or name == "wpe")
        ]
        lengths = (getattr(self.settings, name, None) for name in _LENGTHS)
        longest = next((length for length in lengths if isinstance(length, int)), None)
        if longest is not None:
            # RoBERTa's positions begin after the padding index
            longest -= max((table.padding_idx + 1 for table in tables if table.padding_idx is not None), default=0)
        length = self.job.sequence
        if length is None and longest is None:
            raise UsageError(f"--model {self.path}: it does not say how many tokens a sample has; say --seq")
        if length is not None and longest is not None and length > longest and tables:
            raise UsageError(f"--seq {length}: {self.path} has learnt positions for {longest} tokens only")
        return length or longest or 0


class _Task(NamedTuple):
    """What a model is trained for."""

    models: str
    """Transformers' table of the models for it: ``MODEL_<models>MAPPING_NAMES``."""
    maker: str
    """The class that builds them."""
    inputs: str = "input_ids"
    """What the model is run on; empty for its main input."""
    labels: str = "tokens"
    """Kind of the labels; empty where there are none."""


_TASKS = (
    _Task("FOR_SEQ_TO_SEQ_CAUSAL_LM_", "AutoModelForSeq2SeqLM"),
    _Task("FOR_MASKED_LM_", "AutoModelForMaskedLM"),
    _Task("FOR_CAUSAL_LM_", "AutoModelForCausalLM"),
    _Task("FOR_SEQUENCE_CLASSIFICATION_", "AutoModelForSequenceClassification", labels="classes"),
    _Task("FOR_TOKEN_CLASSIFICATION_", "AutoModelForTokenClassification", labels="tags"),
    _Task("FOR_QUESTION_ANSWERING_", "AutoModelForQuestionAnswering", labels="spans"),
    _Task("FOR_IMAGE_CLASSIFICATION_", "AutoModelForImageClassification", "pixel_values", "classes"),
    _Task("FOR_SEMANTIC_SEGMENTATION_", "AutoModelForSemanticSegmentation", "pixel_values", "pixels"),
    _Task("", "AutoModel", "", ""),
)
"""A config without an architecture gets the first task that supports its model type."""
