"""Rules for the paths of a configuration."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

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
