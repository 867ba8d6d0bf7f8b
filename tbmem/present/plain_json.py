"""Plain values go in; JSON comes out that every browser reads: what is not a finite number is null."""

from __future__ import annotations

import json
import math
from typing import Any


def as_json(value: Any) -> str:
    """Values as JSON, without spaces.

    Args:
        value: Dicts, lists, texts, numbers, truth values, ``None``.
    """
    try:
        return _dumps(value)
    except ValueError:
        # a log may hold NaN where a number was wanted; looking for it costs as much as all the rest
        return _dumps(_finite(value))


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
