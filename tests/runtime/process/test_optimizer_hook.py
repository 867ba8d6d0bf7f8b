"""Listeners come and go while an optimizer's step tells them."""

from __future__ import annotations

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook

from tbmem.runtime.process.optimizer_hook import OptimizerHook


def _step() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter], lr=0.1).step()


def test_one_that_leaves_while_it_is_told_does_not_break_the_training() -> None:
    # given two listeners, and a hook of the program's own that comes after them
    told: list[str] = []
    stays = OptimizerHook(lambda _optimizer: told.append("stays"))

    def leave(_optimizer: torch.optim.Optimizer) -> None:
        told.append("leaves")
        leaves.remove()

    leaves = OptimizerHook(leave)
    programs = register_optimizer_step_post_hook(lambda *_: told.append("the program's"))

    # when one of them goes in the middle of a step
    _step()
    _step()

    # then torch, which goes through its hooks meanwhile, has not noticed
    assert told == ["stays", "leaves", "the program's", "stays", "the program's"]
    programs.remove()
    stays.remove()
    stays.remove()
    assert not _global_optimizer_post_hooks
