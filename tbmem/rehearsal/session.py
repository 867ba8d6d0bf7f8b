"""The part of a rehearsal inside of the program: watches its steps on the simulated GPU, and ends it after enough."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from tbmem.config import load_with_origins
from tbmem.model.files import atomic_write
from tbmem.model.rehearsal import DevicePeak, ProcessResult
from tbmem.present.lines import get_logger
from tbmem.rehearsal.device_reads import first_read
from tbmem.rehearsal.device_use import highest_of_others, own_bytes
from tbmem.rehearsal.environment import Order
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.launch.program import StepCounter
from tbmem.runtime.process.lifecycle import find_rank
from tbmem.sources.torch_state.profiler_state import in_backward
from tbmem.sources.torch_state.storages import model_of

_EVENTS = 1_000_000
_RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
"""Functions of torch that reset the counters of the peak."""


def attach(order: Order) -> None:
    """Start a session as soon as the program initialises CUDA."""
    cuda: Any = torch.cuda
    initialise = cuda._lazy_init

    def _lazy_init() -> None:
        initialise()
        if cuda.is_initialized() and cuda._lazy_init is _lazy_init:
            cuda._lazy_init = initialise
            _start(order)

    cuda._lazy_init = _lazy_init  # functions that torch queues for this moment run while it holds a lock


def _start(order: Order) -> None:
    try:
        Session(order).start()
    except Exception as error:  # the program itself goes on
        get_logger().warning("the rehearsal cannot watch this process: %s", error)


class Session:
    """Watches one process: a callback over all of its steps, one recording, and the counters at the end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._memory = MemoryCallback(load_with_origins(None, _overrides(order)))
        self._counter = StepCounter(self._after_step)
        self._pid = os.getpid()
        self._steps = 0
        self._reserved: dict[int, int] = {}
        self._allocated: dict[int, tuple[int, int]] = {}  # with the step, negative: the first of equal peaks is the one
        self._resets = {name: getattr(torch._C, name) for name in _RESETS if hasattr(torch._C, name)}
        self._is_over = False

    def start(self) -> None:
        """Record from here on."""
        self._memory.start()
        for name, reset in self._resets.items():
            setattr(torch._C, name, partial(self._reset_peaks, reset))
        self._counter.open()
        atexit.register(self.finish)

    def finish(self) -> None:
        """Stop recording and write this process's result; does nothing in a forked child, or the second time."""
        if self._is_over or os.getpid() != self._pid:
            return
        self._is_over = True
        self._counter.close()
        for name, reset in self._resets.items():
            setattr(torch._C, name, reset)
        self._note_peaks(self._steps + 1)
        self._memory.stop()
        result = self._result()
        path = Path(self._order.results) / f"{result.rank}-{self._pid}.json"
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(asdict(result)), encoding="utf-8")

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._steps += 1
        self._note_peaks(self._steps)
        self._memory.step()
        if self._steps == 1:
            model = model_of(optimizer)
            if model is not None:
                self._memory.watch(model, optimizer)
        if 0 < self._order.steps <= self._steps and not in_backward():
            self.finish()
            _end_process()

    def _reset_peaks(self, reset: Callable[..., None], *arguments: object) -> None:
        self._note_peaks(self._steps + 1)
        reset(*arguments)

    def _note_peaks(self, step: int) -> None:
        for number in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(number)
            peak = stats.get("reserved_bytes.all.peak", 0)
            self._reserved[number] = max(self._reserved.get(number, 0), peak)
            allocated = (stats.get("allocated_bytes.all.peak", 0), -step)
            self._allocated[number] = max(self._allocated.get(number, (0, 0)), allocated)

    def _result(self) -> ProcessResult:
        rank, summary = find_rank(), self._memory.summary
        is_out_of_memory = summary is not None and summary.out_of_memory
        devices = []
        for number, reserved in self._reserved.items():
            allocated, step = self._allocated[number]
            if not allocated and not (is_out_of_memory and number == torch.cuda.current_device()):
                continue
            devices.append(
                DevicePeak(
                    device=f"cuda:{number}",
                    allocated=allocated,
                    step=-step,
                    reserved=reserved,
                    outside=own_bytes(number) - torch.cuda.memory_reserved(number),
                    others=highest_of_others(number),
                    capacity=torch.cuda.get_device_properties(number).total_memory,
                    retries=torch.cuda.memory_stats(number).get("num_alloc_retries", 0),
                )
            )
        return ProcessResult(
            rank=rank.rank,
            world_size=rank.world_size,
            steps=self._steps,
            devices=tuple(devices),
            out_of_memory=is_out_of_memory,
            exception=summary.exception if summary is not None else None,
            folder=str(self._memory.folder) if self._memory.folder is not None else None,
            snapshots=summary.snapshots if summary is not None else (),
            first_read=first_read(),
        )


def _overrides(order: Order) -> list[str]:
    """Configuration of the callback: everything is recorded, nothing is judged or shown."""
    return [
        f"run.logdir={json.dumps(order.logdir)}",
        "run.ranks=all",
        f"profiling.enabled={json.dumps(order.is_recorded)}",
        f"snapshot.enabled={json.dumps(order.is_recorded)}",
        f"oom.enabled={json.dumps(order.is_recorded)}",
        "monitor.log_every_n_steps=1",
        "monitor.peaks=run",  # a program that prints its own peak prints the right one
        "patterns.enabled=false",
        "evidence.enabled=false",
        "oom.host_percent=100",
        "oom.sigterm=false",
        "output.console=false",
        "profiling.wait=0",
        "profiling.warmup=0",
        f"profiling.active={order.steps or 3}",
        "profiling.repeat=1",
        "profiling.record_shapes=false",
        "profiling.with_stack=false",  # each call of Python: 17 GiB on the host for DTensor's; snapshots have their own
        f"snapshot.max_entries={_EVENTS}",
    ]


def _end_process() -> None:
    """End the process at once, with the processes that it has started: no framework catches this."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.terminate()
        except psutil.Error:
            continue
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(0)
