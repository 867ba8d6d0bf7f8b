"""StepCounter: the steps of a training run, found from the steps of all optimizers of a program."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from tbmem.present.lines import get_logger
from tbmem.runtime.process.optimizer_hook import OptimizerHook
from tbmem.sources.torch_state.profiler_state import in_backward

FIRST, EACH = "first", "each"
_MAX_OTHER_STEPS = 100
"""Steps of other optimizers without one of the chosen, after which the chosen is thought to be given up."""


class StepCounter:
    """Sees a training's steps in a program that knows nothing of it, through torch's public global hook.

    A training step is a step of one chosen optimizer: gradients that are accumulated belong to it, and so do the
    steps of all other optimizers, as of a GAN's second. When the chosen one is gone, or has not stepped for a
    hundred steps of the others, the next to step takes its place. Optimizers are held by weak references.

    An optimizer that steps inside of the backward pass (in a gradient's hook) ends a step that is not over yet:
    activations still go, and nothing can be recorded there. It is told when the next module is called.

    Args:
        on_step: Called after each training step with the optimizer.
        choice: Which optimizer counts: ``'first'`` (the first to step), ``'2'`` (the second to step), a class's name
            (``'AdamW'``), or ``'each'`` for all.
    """

    def __init__(self, on_step: Callable[[torch.optim.Optimizer], None], choice: str = FIRST) -> None:
        self.seen: list[str] = []
        """Classes of the optimizers that have stepped, in the order of their first steps."""
        self._on_step = on_step
        self._choice = choice
        self._known: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._leader: weakref.ref[torch.optim.Optimizer] | None = None
        self._others = 0
        self._hook: OptimizerHook | None = None
        self._unreported: torch.optim.Optimizer | None = None
        self._forward_hook: Any = None

    def open(self) -> None:
        """Begin to look."""
        self._hook = OptimizerHook(self._after_step)

    def close(self, *, report_last: bool = True) -> None:
        """Take the hooks away; a step that was not reported yet is reported now, where ``report_last`` is set."""
        if not report_last:
            self._unreported = None
        self._report_step()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if (self._leader is not None and self._leader() is optimizer) or self._is_elected(optimizer):
            self._others = 0
            self._report_step()
            self._unreported = optimizer
            if in_backward():
                self._forward_hook = register_module_forward_pre_hook(self._before_forward)
            else:
                self._report_step()

    def _before_forward(self, _module: torch.nn.Module, _arguments: Any) -> None:
        if not torch.compiler.is_compiling() and not in_backward():  # a checkpoint runs modules again in there
            self._report_step()

    def _report_step(self) -> None:
        optimizer, self._unreported = self._unreported, None
        if self._forward_hook is not None:
            self._forward_hook.remove()
            self._forward_hook = None
        if optimizer is not None:
            self._on_step(optimizer)

    def _is_elected(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer that does not lead is to count from now on."""
        self._note_optimizer(optimizer)
        self._others += 1
        if self._choice == EACH:
            return True
        leader = self._leader() if self._leader is not None else None
        if (leader is None and self._fits(optimizer)) or (leader is not None and self._others > _MAX_OTHER_STEPS):
            if self._leader is not None:
                get_logger().info("steps are counted by another optimizer from here on: %s", type(optimizer).__name__)
            self._leader = weakref.ref(optimizer)
            return True
        return False

    def _fits(self, optimizer: torch.optim.Optimizer) -> bool:
        if self._choice.isdigit():
            # the chosen one may be gone: then whoever steps
            return len(self.seen) >= int(self._choice)
        return self._choice in (FIRST, type(optimizer).__name__)

    def _note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer in self._known:
            return
        self._known.add(optimizer)
        self.seen.append(type(optimizer).__name__)
        if len(self.seen) == 2 and self._choice == FIRST:
            get_logger().info(
                "two optimizers (%s, %s): steps are counted by the first; --step-on 2, --step-on each or a class's"
                " name chooses otherwise",
                *self.seen,
            )
