"""gym's interface of 2022 on gymnasium, with seeds, for programs that were written for it."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
from gymnasium import spaces

__all__ = ["make", "spaces"]

_seeds = itertools.count()


def make(name: str, autoreset: bool = False, **options: Any) -> gymnasium.Env[Any, Any]:
    environment = gymnasium.make(name, **options)
    if autoreset:
        wrapper = getattr(gymnasium.wrappers, "Autoreset", None) or gymnasium.wrappers.AutoResetWrapper  # of 0.29
        environment = wrapper(environment)
    environment.reset(seed=next(_seeds))
    return environment
