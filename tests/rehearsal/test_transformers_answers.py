"""What transformers asks of the device: whether it is done, whether sequences are packed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from tbmem.rehearsal.transformers_answers import end_at_the_last_token, no_packed_sequences


class Mixin:
    """transformers' loop, on a device that never says that it is done."""

    def _has_unfinished_sequences(self, this_peer_finished: bool, synced_gpus: bool, device: Any) -> bool:
        return not this_peer_finished

    def sample(self, input_ids: torch.Tensor, stopping_criteria: Any, *, done_at: int) -> int:
        while self._has_unfinished_sequences(input_ids.shape[1] >= done_at, False, device="cpu"):
            input_ids = torch.cat([input_ids, input_ids[:, :1]], dim=1)
        return int(input_ids.shape[1])


def test_it_ends_at_the_last_token_or_before() -> None:
    # given a loop that may have 9 tokens
    mixin = type("GenerationMixin", (Mixin,), {})
    end_at_the_last_token(SimpleNamespace(GenerationMixin=mixin))
    criteria, prompt = SimpleNamespace(max_length=9), torch.zeros(2, 3, dtype=torch.long)
    # when nothing says that it is done, then it ends there; else when it is done
    assert mixin().sample(prompt, criteria, done_at=1000) == 9
    assert mixin().sample(prompt, criteria, done_at=5) == 5


def test_a_loop_without_a_limit_is_left_alone() -> None:
    # given criteria without a length, when it runs, then only the loop's own condition ends it
    mixin = type("GenerationMixin", (Mixin,), {})
    end_at_the_last_token(SimpleNamespace(GenerationMixin=mixin))
    assert mixin().sample(torch.zeros(2, 3, dtype=torch.long), None, done_at=12) == 12


def test_each_row_is_one_sequence() -> None:
    # given a module that asks the device, which answers that positions do not rise
    module = SimpleNamespace(find_packed_sequence_indices=lambda positions: (positions.diff() != 1).cumsum(-1))
    no_packed_sequences(module)
    # when positions are zero, then there is no mask
    assert module.find_packed_sequence_indices(torch.zeros(2, 4)) is None
