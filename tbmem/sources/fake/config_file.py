"""Reads the ``config.json`` of a Hugging Face model, and refuses what cannot be estimated from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tbmem.errors import UsageError

CONFIG = "config.json"


def read_config(path: Path) -> dict[str, Any]:
    """The contents of a config file.

    Args:
        path: Of the file.

    Raises:
        UsageError: There is none, it is not JSON, not the config of a model, or that of a quantized one.
    """
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


def named_folder(path: Path) -> UsageError:
    """What is wrong with a folder as a model.

    Args:
        path: Of the folder.
    """
    inside = path / CONFIG
    advice = f"say {inside}" if inside.is_file() else f"it has no {CONFIG}"
    return UsageError(f"--model {path}: this is a folder; {advice}")
