"""Ranks that a launcher's environment variables describe, as options of ``tbmem estimate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbmem.errors import UsageError

_WORLD = ("WORLD_SIZE", "WORLD_RANK")
"""The second name is what the README of a tracer for Megatron-LM calls it."""
_PARALLEL = {
    "tp": ("TENSOR_MODEL_PARALLEL_SIZE", "TP_SIZE", "TP"),
    "pp": ("PIPELINE_MODEL_PARALLEL_SIZE", "PP_SIZE", "PP"),
    "ep": ("EXPERT_MODEL_PARALLEL_SIZE", "EP_SIZE", "EP"),
}
"""Variables by option, as Megatron's arguments and its example scripts name them; the first that is set counts."""


def with_environment(options: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The options with what they leave out of the ranks, and a sentence on it; empty where nothing was taken.

    Only ``RANK`` together with a world size of two or more counts, and only where no option names the ranks: sizes of
    tensor, pipeline and expert parallelism are then read as well.

    Raises:
        UsageError: A variable that counts is no whole number.
    """
    world = next((name for name in _WORLD if environment.get(name)), None)
    names = ("world_size", "rank", "fsdp", "ddp", *_PARALLEL)
    if world is None or not environment.get("RANK") or any((options.get(name) or 0) > 1 for name in names):
        return dict(options), ""
    if options.get("rank") or options.get("world_size") or _number(environment, world) < 2:
        return dict(options), ""
    taken = {"world_size": world, "rank": "RANK"}
    for option, variables in _PARALLEL.items():
        if found := next((name for name in variables if environment.get(name)), None):
            taken[option] = found
    values = {option: _number(environment, name) for option, name in taken.items()}
    words = ", ".join(f"{name}={environment[name]}" for name in taken.values())
    return {**options, **values}, f"Ranks are those of the environment: {words}."


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise UsageError(f"{name}={environment[name]}: in the environment, must be a whole number") from None
