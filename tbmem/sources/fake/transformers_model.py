"""A Hugging Face config goes in; the language model that transformers makes of it comes out, without weights."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torch import nn

from tbmem.errors import UsageError

_KINDS = (
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "AutoModelForSeq2SeqLM"),
    ("MODEL_FOR_MASKED_LM_MAPPING", "AutoModelForMaskedLM"),
    ("MODEL_FOR_CAUSAL_LM_MAPPING", "AutoModelForCausalLM"),
)
"""What kinds of models that take tokens and labels a config may stand for, those that are trained so most first."""


def transformers_model(path: Path, config: dict[str, Any], length: int | None) -> tuple[nn.Module, int]:
    """Build the model of a config.

    Args:
        path: Of the config; for messages.
        config: Its contents.
        length: Tokens of a sample, if that is said; else as many as it takes at most.

    Returns:
        The model, and how many tokens a sample has.

    Raises:
        UsageError: transformers is not there, has no such model for tokens and labels, or none that takes so many.
    """
    kind = config["model_type"]
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"--model {path}: a {kind} model is not one of the built-in decoder's; install transformers, which builds"
            " it, or write a factory"
        ) from error
    try:
        settings = transformers.AutoConfig.for_model(**config)
    except ValueError as error:
        raise UsageError(
            f"--model {path}: transformers {transformers.__version__} has no {kind} models; write a factory"
        ) from error
    if getattr(settings, "decoder_start_token_id", None) is None:
        # labels are shifted behind it, whichever token it is
        settings.decoder_start_token_id = 0
    for models, maker in _KINDS:
        if type(settings) in getattr(transformers, models):
            model = getattr(transformers, maker).from_config(settings)
            return model, _length(path, model, _longest(settings), length)
    raise UsageError(f"--model {path}: a {kind} model does not learn from tokens and labels alone; write a factory")


def _length(path: Path, model: nn.Module, longest: int | None, asked: int | None) -> int:
    if asked is None and longest is None:
        raise UsageError(f"--model {path}: it does not say how many tokens a sample has; say --seq")
    if asked is not None and longest is not None and asked > longest and _learns_positions(model):
        raise UsageError(f"--seq {asked}: {path} has learnt positions for {longest} tokens only")
    return asked or longest or 0


def _learns_positions(model: nn.Module) -> bool:
    tables = (name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Embedding))
    return any("position" in name or name == "wpe" for name in tables)


def _longest(settings: Any) -> int | None:
    names = ("max_position_embeddings", "n_positions", "seq_length")
    return next((value for name in names if isinstance(value := getattr(settings, name, None), int)), None)
