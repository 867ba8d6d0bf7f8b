"""The profiles of torch that a program has made go in; whether one of them is in its warm-up comes out."""

from __future__ import annotations

import gc
from typing import Any

from torch.autograd import profiler as torch_profiler


def prepared_profiles() -> bool:
    """Whether the program has a profile of torch in its warm-up: torch crashes when another one starts meanwhile."""
    kind = torch_profiler.profile
    # not isinstance: it asks the program's own objects, and some answer with a warning
    profiles: list[Any] = [found for found in gc.get_referrers(kind) if issubclass(type(found), kind)]
    return any(getattr(found, "entered", False) and found.kineto_results is None for found in profiles)
