"""Records the allocations of a block of code as a snapshot or a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tbmem.config.schema import ProfilingConfig, RunConfig
from tbmem.present.lines import console_handler, get_logger
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import find_rank
from tbmem.runtime.process.run_folder import RunFolder, open_run_folder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.window import Window, profiler_is_busy
from tbmem.sources.torch_state.memory_history import MemoryHistory

PART = "record"


@dataclass(slots=True)
class Recording:
    """Files of a ``record`` block."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    """Set when the block ends."""


@contextmanager
def record(
    name: str = "record",
    *,
    logdir: str = "runs",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    max_entries: int = 100_000,
) -> Iterator[Recording]:
    """Record the memory of a block of code.

    On CUDA and XPU the allocator's history is written as a snapshot that pytorch.org/memory_viz opens; on other
    devices a torch.profiler trace is written. The files are written after an exception, too.

    Args:
        name: Folder below ``logdir``; numbered (``name_2``) if an earlier run has the name.
        logdir: Folder that holds all runs.
        model: Model whose parameters and modules are named in the address book.
        optimizer: Optimizer whose state is recorded in it.
        max_entries: Allocator events that are kept (snapshot only).

    Raises:
        RunFolderError: The folder cannot be written.
    """
    rank, guard, addresses = find_rank(), Guard(), AddressRecorder()
    folder = open_run_folder(RunConfig(logdir=logdir, name=name), rank)
    recording = Recording(folder.path)
    history = MemoryHistory.of_this_process(max_entries)
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
    guard.run(PART, addresses.open)
    guard.run(PART, addresses.begin)
    try:
        yield
    finally:
        try:
            path = folder.snapshot(1)
            if guard.run(PART, history.write, path) is False:
                get_logger().warning("record: the ring buffer is full, the first events are lost; raise max_entries")
            book = guard.run(PART, addresses.end, {"snapshot": path.name})
            book_path = guard.run(PART, folder.write_address_book, book, path) if book is not None else None
            recording.files += [file for file in (path, book_path) if file is not None and file.exists()]
        finally:
            guard.run("record (switching off)", addresses.close)
            guard.run("record (switching off)", history.stop)


@contextmanager
def _trace(folder: RunFolder, addresses: AddressRecorder, guard: Guard, recording: Recording) -> Iterator[None]:
    def begin() -> None:
        addresses.open()
        window.prepare()
        window.begin()
        window.begin_step(1)

    def finish() -> None:
        if window.is_recording:
            result = guard.run(PART, window.finish, complete=True)
            recording.files += result.files if result is not None else []

    def give_way() -> None:
        get_logger().warning("record: the program starts a torch profiler of its own; what follows is not recorded")
        finish()

    window = Window(ProfilingConfig(), folder, number=1, addresses=addresses, give_way=give_way)
    guard.run(PART, begin)
    try:
        yield
    finally:
        try:
            finish()
        finally:
            guard.run("record (switching off)", window.discard)
            guard.run("record (switching off)", addresses.close)
