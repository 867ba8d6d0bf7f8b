"""Runs a program under a MemoryCallback and counts its training steps."""

from __future__ import annotations

import atexit
import shutil
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from tbmem.config import LoadedConfig
from tbmem.errors import did_you_mean
from tbmem.model.monitor_log import OPTIMIZER_STEPPED
from tbmem.present.lines import get_logger
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.launch.script import Program
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.optimizer_hook import OptimizerHook
from tbmem.runtime.run_observer import ObservedRun, RunObservers
from tbmem.sources.torch_state.profiler_state import in_backward
from tbmem.sources.torch_state.storages import model_of

FIRST, EACH = "first", "each"
_MAX_OTHER_STEPS = 100
"""Steps of other optimizers after which the chosen one is considered unused."""
_TOLD_AFTER = 10
"""Steps of other optimizers after which it is said that the chosen one has not stepped yet."""
_MOST_SEARCHES = 4
"""Optimizers whose models are searched for: a search takes some ten milliseconds, and there may be one a layer."""
_TWO_OPTIMIZERS = (
    "two optimizers (%s, %s): steps are counted by the first; --step-on 2, --step-on each or a class's name chooses"
    " otherwise"
)
_OTHERS_STEPPED = "no training step was seen so far: --step-on %s counts none of the optimizers that stepped (%s)%s"
_NO_OPTIMIZER = (
    "no training step was seen: no optimizer of torch stepped in this process · a loop without one, or in a process"
    " that the script starts, calls MemoryCallback.step() itself; Keras has a callback, docs/keras.md"
)
_OWN_CALLBACK = (
    "the program starts a callback of its own: that one counts, with its own settings, and tbmem run makes way for it;"
    " TBMEM_PROFILING_ACTIVE=5 and the like in the environment change its settings"
)
_WRONG_ARGUMENTS = 2
"""Exit code of argparse, click and others, after which nothing was trained."""


class StepCounter:
    """Counts the training steps of an unmodified program through torch's global optimizer hook.

    A training step is a step of one chosen optimizer; steps of other optimizers, as in a GAN, belong to it. If the
    chosen optimizer is deleted, or has not stepped for a hundred steps of the others, the next to step replaces it.
    A step inside the backward pass (in a gradient hook) is reported at the next module call: before, activations are
    still freed and nothing can be recorded.

    Args:
        on_step: Called after each training step with the optimizer.
        choice: Which optimizer counts: ``'first'`` (the first to step), ``'2'`` (the second to step), a class's name
            (``'AdamW'``), or ``'each'`` for all.
    """

    def __init__(self, on_step: Callable[[torch.optim.Optimizer], None], choice: str = FIRST) -> None:
        self.seen: list[str] = []
        """Classes of the optimizers that have stepped, in the order of their first steps."""
        self._on_step = on_step
        self.choice = choice
        self.known: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        """The optimizers that have stepped, as long as they live."""
        self._leader: weakref.ref[torch.optim.Optimizer] | None = None
        self._others = 0
        self._has_warned = False
        self._hook: OptimizerHook | None = None
        self._unreported: torch.optim.Optimizer | None = None
        self._forward_hook: Any = None

    def open(self) -> None:
        """Add the hook."""
        self._hook = OptimizerHook(self._after_step)

    def close(self, *, report_last: bool = True) -> None:
        """Remove the hooks, and report a step that was not reported yet unless ``report_last`` is false."""
        self._unreported = self._unreported if report_last else None
        self._report_step()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def warn_of_others(self) -> None:
        """Say, once, that only optimizers stepped that the choice does not count."""
        if self._has_warned:
            return
        self._has_warned = True
        meant = did_you_mean(self.choice, self.seen)
        get_logger().warning(_OTHERS_STEPPED, self.choice, ", ".join(self.seen), f"; {meant}" if meant else "")

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if (self._leader is not None and self._leader() is optimizer) or self._is_elected(optimizer):
            self._others = 0
            if self._unreported is not None:
                self._report_step()
            if in_backward():
                self._unreported = optimizer
                self._forward_hook = register_module_forward_pre_hook(self._before_forward)
            else:
                self._on_step(optimizer)

    def _before_forward(self, _module: torch.nn.Module, _arguments: Any) -> None:
        if not torch.compiler.is_compiling() and not in_backward():  # checkpointing calls modules in backward
            self._report_step()

    def _report_step(self) -> None:
        optimizer, self._unreported = self._unreported, None
        if self._forward_hook is not None:
            self._forward_hook.remove()
            self._forward_hook = None
        if optimizer is not None:
            self._on_step(optimizer)

    def _is_elected(self, optimizer: torch.optim.Optimizer) -> bool:
        if optimizer not in self.known:
            self._note_optimizer(optimizer)
        self._others += 1
        if self.choice == EACH:
            return True
        kind = type(optimizer).__name__
        if self._leader is not None and self._leader() is not None:
            is_chosen = self._others > _MAX_OTHER_STEPS
        elif self.choice.isdigit():
            is_chosen = len(self.seen) >= int(self.choice)  # if the chosen one is deleted: any other
        else:
            is_chosen = self.choice in (FIRST, kind)
        if is_chosen:
            if self._leader is not None:
                get_logger().info("steps are counted by another optimizer from here on: %s", kind)
            self._leader = weakref.ref(optimizer)
        elif self._leader is None and self._others == _TOLD_AFTER:
            self.warn_of_others()  # now, not only at the end of a long training
        return is_chosen

    def _note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.known.add(optimizer)
        self.seen.append(type(optimizer).__name__)
        if len(self.seen) == 2 and self.choice == FIRST:
            get_logger().info(_TWO_OPTIMIZERS, *self.seen)


class OptimizerRun:
    """A run whose steps are those of torch's optimizers, for code without a callback in it.

    ``step_on`` is the ``choice`` of ``StepCounter``. Raises what MemoryCallback raises.
    """

    def __init__(self, config: LoadedConfig, step_on: str = FIRST) -> None:
        self.memory = MemoryCallback(config)
        self.memory._step_ends = OPTIMIZER_STEPPED
        self.has_stepped = False
        self._watched: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._searches = self._searched_for = 0  # for models, and the optimizers seen so far for which it was done
        self._steps = StepCounter(self._step, step_on)
        self._guard = Guard()
        self.memory.start()
        if self.memory.is_active:  # or switched off, or a rank that is not monitored
            self._steps.open()
            if self.memory._flight is not None:
                self.memory._flight.heed_sigterm()  # now: what the program imports and loads may take minutes

    def warn_of_no_step(self, *, if_none_stepped: bool) -> None:
        """Say why no step was seen; of a program in which no optimizer steps at all only ``if_none_stepped``."""
        if self._steps.seen:
            self._steps.warn_of_others()
        elif if_none_stepped:
            get_logger().warning(_NO_OPTIMIZER)

    def close_steps(self, error: BaseException | None = None) -> None:
        """Count no more steps."""
        self._steps.close(report_last=error is None)  # after an error the step may not be whole

    def end(self, error: BaseException | None = None) -> None:
        """End the run, by ``error`` if given; does nothing in a forked child, or if it has ended."""
        if self.memory.is_active:
            self.close_steps(error)
            self.memory.stop(error)

    def discard(self) -> None:
        """End the run without a summary, and remove its folder: it was not worth one."""
        memory = self.memory
        memory._config = replace(memory.config, output=replace(memory.config.output, summary=False))
        memory.stop(SystemExit())  # after an exception nothing is said of a run that was too short
        if memory.folder is not None:
            shutil.rmtree(memory.folder, ignore_errors=True)

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        self.memory.step()
        self.has_stepped = True
        if self._searched_for < len(self._steps.seen):
            self._searched_for = len(self._steps.seen)
            if self.memory.config.profiling.enabled:
                self._watch_models(optimizer)

    def _watch_models(self, first: torch.optim.Optimizer) -> None:
        """Watch the models of optimizers that are new, as those of a GAN."""
        for optimizer in (first, *self._steps.known):
            if optimizer in self._watched or self._searches == _MOST_SEARCHES:
                continue
            self._watched.add(optimizer)
            self._searches += 1
            model = self._guard.run("looking for the model", model_of, optimizer)
            if model is not None:
                self.memory.watch(model, optimizer)


class MonitoredProgram:
    """A program whose steps are counted; ``step_on`` and errors are those of ``OptimizerRun``.

    A callback that the program starts itself takes the place of this run.
    """

    def __init__(self, program: Program, config: LoadedConfig, step_on: str = FIRST) -> None:
        self._program = program
        program.take_command_line()  # what is redacted are the program's arguments, not the words of tbmem's own
        self._run = OptimizerRun(config, step_on)
        self._resources = ExitStack()
        if self._run.memory.is_active:
            self._resources.enter_context(RunObservers.added(self))
            # threads may continue training after the last line; atexit runs after them
            atexit.register(self._end)

    def run(self) -> None:
        """Run the program; exceptions and ``SystemExit`` propagate to the interpreter."""
        try:
            self._program.run(self._end)
        except SystemExit as ended:
            if ended.code == _WRONG_ARGUMENTS and not self._run.has_stepped and not self._run.memory.findings:
                self._run.discard()  # nothing of its own is to stand below the program's usage
            raise

    def run_begins(self, memory: ObservedRun) -> None:
        """A callback of the program's own starts: two would count and record the same steps."""
        self._resources.close()
        if self._run.memory.is_active:
            get_logger().warning(_OWN_CALLBACK)
            self._run.close_steps()
            if self._run.has_stepped:
                self._run.end()
            else:
                self._run.discard()

    def _end(self, error: BaseException | None = None) -> None:
        self._resources.close()
        if not self._run.memory.is_active:
            return
        self._run.close_steps(error)
        if not self._run.has_stepped and error is None:
            self._run.warn_of_no_step(if_none_stepped=True)
        self._run.end(error)
