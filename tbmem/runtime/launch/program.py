"""MonitoredProgram: a program whose training run is watched by a MemoryCallback without its knowing."""

from __future__ import annotations

import atexit

import torch

from tbmem.config import LoadedConfig
from tbmem.present.lines import get_logger
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.launch.script import Program
from tbmem.runtime.launch.step_counter import FIRST, StepCounter
from tbmem.runtime.process.guard import Guard
from tbmem.sources.torch_state.storages import model_of


class MonitoredProgram:
    """One program, from its first line to the interpreter's end; ``step_on`` is the choice of ``StepCounter``.

    Raises:
        RunFolderError: The run folder cannot be written.
        ConfigError: ``monitor.devices`` names a device that is not there.
    """

    def __init__(self, program: Program, config: LoadedConfig, step_on: str = FIRST) -> None:
        self._program = program
        self._memory = MemoryCallback(config)
        self._steps = StepCounter(self._step, step_on)
        self._guard = Guard()
        self._is_first = True
        self._memory.start()
        if not self._memory.is_active:
            return  # switched off, or a rank that is not watched: nothing is to be seen
        self._steps.open()
        # threads of the program may go on training after its last line: atexit comes when they are done
        atexit.register(self._end)

    def run(self) -> None:
        """Run it; what it raises, and ``SystemExit``, goes on to the interpreter."""
        self._program.run(self._end)

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        self._memory.step()
        if self._is_first:
            self._is_first = False
            self._guard.run("looking for the model", self._watch, optimizer)

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        model = model_of(optimizer)
        if model is not None:
            self._memory.watch(model, optimizer)

    def _end(self, error: BaseException | None = None) -> None:
        """The program has ended, in order or by ``error``; in a child that it forked nothing is ours to end."""
        if not self._memory.is_active:
            return
        self._steps.close(report_last=error is None)  # after an error the step may not be whole
        if self._is_first and error is None:
            stepped = ", ".join(self._steps.seen)
            reason = f"only {stepped} stepped" if stepped else "no optimizer of torch stepped in this process"
            cure = (
                "a loop without one, or in a process that the script starts, calls MemoryCallback.step() itself;"
                " Keras has a callback, docs/keras.md"
            )
            get_logger().warning("no training step was seen: %s · %s", reason, cure if not stepped else "see --step-on")
        self._memory.stop(error)
