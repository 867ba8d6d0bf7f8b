"""What a value of the configuration may be."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from tbmem.units import parse_bytes

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be, and whether it is."""


def is_address(path: str) -> bool:
    """Whether a path is that of a remote storage, ``s3://bucket/runs``, which is no folder of this machine."""
    scheme, separator, _ = path.partition("://")
    return len(scheme) > 1 and bool(separator) and "/" not in scheme


NAMED: Rule = ("must name a folder, or be null", lambda name: name is None or name.strip(". ") != "")
INSIDE: Rule = (
    "must lie inside of run.logdir",
    lambda name: name is None or not (name.startswith(("/", "~")) or ".." in name.split("/")),
)
ENCODABLE: Rule = (
    "must be without control characters and surrogates",
    lambda path: path is None or not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in path),
)
LOCAL: Rule = (
    "must be a folder of this machine; mount the storage, or copy the run there when it has ended",
    lambda path: not is_address(path),
)


def at_least(low: float) -> Rule:
    """A number from ``low`` on."""
    return f"must be at least {low:g}, and finite", lambda value: low <= value < float("inf")


def one_of(*words: str) -> Rule:
    """One of some words."""
    return f"must be {' or '.join(words)}", lambda value: value in words


def ranks_of(value: int | str) -> frozenset[int] | None:
    """The set of ranks that ``value`` means; ``None`` for all of them."""
    try:
        return None if value == "all" else frozenset(int(part) for part in str(value).split(","))
    except ValueError:
        return frozenset({-1})


def _is_ascending(levels: Iterable[float]) -> bool:
    levels = list(levels)
    return len(levels) == 3 and levels == sorted(set(levels)) and levels[0] > 0 and levels[-1] <= 100


ASCENDING: Rule = ("must be three ascending percentages up to 100, such as [87.5, 93.75, 97.5]", _is_ascending)
SIZE: Rule = ("", lambda value: parse_bytes(value) >= 0)
SINKS: Rule = ("must be names such as [wandb, mlflow]", lambda names: all(name.strip() for name in names))
RANKS: Rule = ("must be a rank, ranks such as '0,8', or 'all'", lambda value: min(ranks_of(value) or [0]) >= 0)
