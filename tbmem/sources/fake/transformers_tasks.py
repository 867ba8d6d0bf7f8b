"""What transformers' models are trained for, and a batch of the right shapes for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tbmem.errors import UsageError

Tensors = dict[str, torch.Tensor]
_LENGTHS = ("max_position_embeddings", "n_positions", "seq_length")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a batch is made for."""

    path: Path
    """Of the config; for messages."""
    model: nn.Module
    settings: Any
    """transformers' config."""
    count: int
    """Samples of a part of a step."""
    length: int | None
    """Tokens of a sample, if that is said; else as many as the model takes at most."""
    dtype: torch.dtype
    """Of the parameters."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A kind of training."""

    models: str
    """Transformers' table of the models for it: ``MODEL_<models>MAPPING_NAMES``."""
    maker: str
    """The class that builds them."""
    inputs: Callable[[Sample], Tensors]
    """What the model is run on."""
    targets: Callable[[Sample, Tensors], Tensors]
    """What its loss is computed with, beside the inputs."""


def _tokens(sample: Sample) -> Tensors:
    """All of them the same, and none of them padding."""
    token = 1 if getattr(sample.settings, "pad_token_id", None) == 0 else 0
    return {"input_ids": torch.full((sample.count, _length(sample)), token)}


def _images(sample: Sample) -> Tensors:
    if sample.length is not None:
        raise UsageError(
            f"--seq {sample.length}: {sample.path} is a model of images, which have no tokens; leave it out"
        )
    size, channels = getattr(sample.settings, "image_size", None), getattr(sample.settings, "num_channels", 3)
    sides = (size, size) if isinstance(size, int) else size
    if not isinstance(sides, (list, tuple)) or len(sides) != 2:
        raise UsageError(
            f"--model {sample.path}: it has no image_size, the pixels of a side; add it, or write a factory"
        )
    return {"pixel_values": torch.zeros(sample.count, channels, *sides, dtype=sample.dtype)}


def _next_tokens(sample: Sample, inputs: Tensors) -> Tensors:
    del sample
    return {"labels": inputs["input_ids"].clone()}


def _tags(sample: Sample, inputs: Tensors) -> Tensors:
    del sample
    return {"labels": torch.zeros_like(inputs["input_ids"])}


def _classes(sample: Sample, inputs: Tensors) -> Tensors:
    del inputs
    count, problem = sample.settings.num_labels, sample.settings.problem_type
    if problem == "multi_label_classification" or (problem == "regression" and count > 1):
        return {"labels": torch.zeros(sample.count, count, dtype=sample.dtype)}
    numbers = problem == "regression" or (problem is None and count == 1)
    return {"labels": torch.zeros(sample.count, dtype=sample.dtype if numbers else torch.int64)}


def _ends(sample: Sample, inputs: Tensors) -> Tensors:
    del inputs
    return {name: torch.zeros(sample.count, dtype=torch.int64) for name in ("start_positions", "end_positions")}


def _pixels(sample: Sample, inputs: Tensors) -> Tensors:
    sides = inputs["pixel_values"].shape[-2:]
    return {"labels": torch.zeros(sample.count, *sides, dtype=torch.int64)}


def _no_targets(sample: Sample, inputs: Tensors) -> Tensors:
    """Of a model without a head."""
    del inputs
    raise UsageError(
        f"--model {sample.path}: {type(sample.model).__name__} has no loss of its own; name a class with a head in"
        " architectures, say --inference, or write a factory"
    )


def _its_own(sample: Sample) -> Tensors:
    """Of a model without a head: whatever it says that it takes."""
    takes = getattr(sample.model, "main_input_name", "")
    if takes not in ("input_ids", "pixel_values"):
        raise UsageError(
            f"--model {sample.path}: {type(sample.model).__name__} takes {takes}, whose size the config does not say;"
            " write a factory"
        )
    return _tokens(sample) if takes == "input_ids" else _images(sample)


TASKS = (
    Task(models="FOR_SEQ_TO_SEQ_CAUSAL_LM_", maker="AutoModelForSeq2SeqLM", inputs=_tokens, targets=_next_tokens),
    Task(models="FOR_MASKED_LM_", maker="AutoModelForMaskedLM", inputs=_tokens, targets=_next_tokens),
    Task(models="FOR_CAUSAL_LM_", maker="AutoModelForCausalLM", inputs=_tokens, targets=_next_tokens),
    Task(
        models="FOR_SEQUENCE_CLASSIFICATION_",
        maker="AutoModelForSequenceClassification",
        inputs=_tokens,
        targets=_classes,
    ),
    Task(
        models="FOR_TOKEN_CLASSIFICATION_",
        maker="AutoModelForTokenClassification",
        inputs=_tokens,
        targets=_tags,
    ),
    Task(models="FOR_QUESTION_ANSWERING_", maker="AutoModelForQuestionAnswering", inputs=_tokens, targets=_ends),
    Task(models="FOR_IMAGE_CLASSIFICATION_", maker="AutoModelForImageClassification", inputs=_images, targets=_classes),
    Task(
        models="FOR_SEMANTIC_SEGMENTATION_",
        maker="AutoModelForSemanticSegmentation",
        inputs=_images,
        targets=_pixels,
    ),
    Task(models="", maker="AutoModel", inputs=_its_own, targets=_no_targets),
)
"""Where a config does not name its class, the first that its kind of model is made for."""


def batch_of(task: Task, sample: Sample, inference: bool) -> Tensors:
    """Tensors by the names under which the model takes them.

    Args:
        task: What the model is trained for.
        sample: What for.
        inference: Without what only a loss needs.

    Raises:
        UsageError: The config does not say how large they are, or the model has no loss.
    """
    inputs = task.inputs(sample)
    if not inference:
        return {**inputs, **task.targets(sample, inputs)}
    if getattr(sample.settings, "is_encoder_decoder", False):
        return {**inputs, "decoder_input_ids": inputs["input_ids"].clone()}
    return inputs


def _length(sample: Sample) -> int:
    asked, longest = sample.length, _longest(sample)
    if asked is None and longest is None:
        raise UsageError(f"--model {sample.path}: it does not say how many tokens a sample has; say --seq")
    if asked is not None and longest is not None and asked > longest and _position_tables(sample.model):
        raise UsageError(f"--seq {asked}: {sample.path} has learnt positions for {longest} tokens only")
    return asked or longest or 0


def _longest(sample: Sample) -> int | None:
    names = (getattr(sample.settings, name, None) for name in _LENGTHS)
    longest = next((value for value in names if isinstance(value, int)), None)
    # RoBERTa's positions begin behind that of padding
    unused = [table.padding_idx + 1 for table in _position_tables(sample.model) if table.padding_idx is not None]
    return longest - max(unused, default=0) if longest is not None else None


def _position_tables(model: nn.Module) -> list[nn.Embedding]:
    tables = ((name.rpartition(".")[2], part) for name, part in model.named_modules() if isinstance(part, nn.Embedding))
    return [part for name, part in tables if "position" in name or name == "wpe"]
