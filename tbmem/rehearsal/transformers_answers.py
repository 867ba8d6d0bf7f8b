"""What transformers asks of the device, answered for one that computes nothing: is it done, are sequences packed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def no_packed_sequences(module: Any) -> None:
    """Let ``transformers.masking_utils`` take each row for one sequence.

    It asks the device, where every value is zero; another answer would make a mask and take another attention kernel.
    """
    module.find_packed_sequence_indices = lambda *_, **__: None


def end_at_the_last_token(module: Any) -> None:
    """Let ``generate()`` of ``transformers.generation.utils`` end: whether it is done is computed on the device."""
    mixin = module.GenerationMixin
    mixin._has_unfinished_sequences = until_the_last_token(mixin._has_unfinished_sequences)


def until_the_last_token(is_unfinished: Callable[..., bool]) -> Callable[..., bool]:
    """The condition of transformers' loop, and that the caller's tokens are fewer than its criteria allow."""

    @functools.wraps(is_unfinished)
    def _has_unfinished_sequences(*arguments: Any, **options: Any) -> bool:
        caller = sys._getframe(1).f_locals
        most, tokens = getattr(caller.get("stopping_criteria"), "max_length", None), caller.get("input_ids")
        if most is not None and tokens is not None and tokens.shape[-1] >= most:
            return False
        return is_unfinished(*arguments, **options)

    return _has_unfinished_sequences
