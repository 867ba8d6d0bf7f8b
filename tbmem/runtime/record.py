"""record: the allocations of any code, as a snapshot or a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tbmem.config.schema import ProfilingConfig, RunConfig
from tbmem.present.lines import console_handler, get_logger
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.identity import find_rank
from tbmem.runtime.process.run_folder import RunFolder, open_run_folder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.window import Window, profiler_is_busy
from tbmem.sources.torch_state.memory_history import MemoryHistory

PART = "record"


@dataclass(slots=True)
class Recording:
    """What a ``record`` block writes."""

    folder: Path
    """A run's folder; with a number, ``name_2``, where an earlier run has the name."""
    files: list[Path] = field(default_factory=list)
    """Filled when the block ends."""


@contextmanager
def record(
    name: str = "record",
    *,
    logdir: str = "runs",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    max_entries: int = 100_000,
) -> Iterator[Recording]:
    """Record the memory of any code.

    On CUDA and XPU the allocator's history is written as a snapshot that pytorch.org/memory_viz opens; elsewhere
    torch.profiler's trace serves instead. Recording is off again afterwards, whatever happened inside, and what
    was recorded is written after an exception too.

    Args:
        name: Folder below ``logdir``, a run for TensorBoard; numbered (``name_2``) where an earlier run has it.
        logdir: Folder that holds all runs.
        model: Gives the address book names of parameters and modules.
        optimizer: Gives it the optimizer's state.
        max_entries: Allocator events that are kept (snapshot only).

    Yields:
        The recording: its ``folder``, and its ``files``, which are filled at the end.

    Raises:
        RunFolderError: The folder cannot be written.
    """
    rank = find_rank()
    folder = open_run_folder(RunConfig(logdir=logdir, name=name), rank)
    guard, recording = Guard(), Recording(folder.path)
    history = MemoryHistory.of_this_process(max_entries)
    addresses = AddressRecorder()
    addresses.watch(model, *([optimizer] if optimizer is not None else []))
    with console_handler():
        if folder.note and rank.rank == 0:
            get_logger().warning("record: %s", folder.note)
        if history is not None:
            with _history(history, folder, addresses, guard, recording):
                yield recording
        elif profiler_is_busy():
            get_logger().warning("record %r: another torch profiler is running, so nothing is recorded", name)
            yield recording
        else:
            with _trace(folder, addresses, guard, recording):
                yield recording


@contextmanager
def _history(
    history: MemoryHistory, folder: RunFolder, addresses: AddressRecorder, guard: Guard, recording: Recording
) -> Iterator[None]:
    guard.run(PART, history.start)
    guard.run(PART, _begin_addresses, addresses)
    try:
        yield
    finally:
        try:
            path = folder.snapshot(1)
            if guard.run(PART, history.write, path) is False:
                get_logger().warning("record: the ring buffer is full, the first events are lost; raise max_entries")
            if path.exists():
                recording.files.append(path)
            book = guard.run(PART, addresses.end, {"snapshot": path.name})
            if book is not None:
                book_path = guard.run(PART, folder.write_address_book, book, path)
                recording.files += [book_path] if book_path is not None else []
        finally:
            guard.run("record (switching off)", addresses.close)
            guard.run("record (switching off)", history.stop)


@contextmanager
def _trace(folder: RunFolder, addresses: AddressRecorder, guard: Guard, recording: Recording) -> Iterator[None]:
    def finish() -> None:
        if window.is_recording:
            files = guard.run(PART, window.finish, complete=True)
            recording.files += files.all() if files is not None else []

    def give_way() -> None:
        get_logger().warning("record: the program starts a torch profiler of its own; what follows is not recorded")
        finish()

    window = Window(ProfilingConfig(), folder, number=1, addresses=addresses, give_way=give_way)
    guard.run(PART, _begin, window, addresses)
    try:
        yield
    finally:
        try:
            finish()
        finally:
            guard.run("record (switching off)", window.discard)
            guard.run("record (switching off)", addresses.close)


def _begin_addresses(addresses: AddressRecorder) -> None:
    addresses.open()
    addresses.begin()


def _begin(window: Window, addresses: AddressRecorder) -> None:
    addresses.open()
    window.prepare()
    window.begin()
    window.begin_step(1)
