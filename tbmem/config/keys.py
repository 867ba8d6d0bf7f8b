"""A configuration's values go in, section in section; they come out by their full keys, ``profiling.active``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tbmem.config.schema import Config

ENVIRONMENT_PREFIX = "TBMEM_"
"""``TBMEM_PROFILING_ACTIVE=5`` sets ``profiling.active``; ``TBMEM_ENABLED=0`` sets ``enabled``."""


def flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in (values or {}).items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def schema_keys() -> list[str]:
    """Every key that there is, in the schema's order."""
    return list(flatten(asdict(Config())))
