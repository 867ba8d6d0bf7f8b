"""Records the allocations of a block of code as a snapshot or a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.recordings.span_tables import module_table, phase_table
from tbmem.config.schema import ProfilingConfig, RunConfig
from tbmem.errors import UsageError
from tbmem.model.address_book import AddressBook
from tbmem.model.files import address_book_name
from tbmem.model.redaction import NOTHING_REDACTED, Redaction, redacted_lines
from tbmem.model.span import ModuleMemory, PhaseMemory, as_plain
from tbmem.present.lines import console_handler, get_logger
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Process, find_rank
from tbmem.runtime.process.run_folder import RunFolder, open_run_folder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.spans import ModuleSpans, PhaseSpans
from tbmem.runtime.profiling.window import HISTORY_TAKEN, NO_STACKS, Window, profiler_is_busy
from tbmem.runtime.profiling.window_files import WindowFiles
from tbmem.sources.recording import read_recording
from tbmem.sources.torch_state.memory_history import MemoryHistory, history_is_on
from tbmem.sources.torch_state.user_modes import Unseen
from tbmem.units import format_bytes

PART = "record"
_BOOK_BYTES = 1 << 20
"""About what an address book takes in memory."""


class Recording:
    """What a ``record`` block has recorded: files, and once it has ended phases, modules and the whole analysis."""

    def __init__(self, folder: Path, modules: ModuleSpans) -> None:
        self.folder = folder
        self.files: list[Path] = []
        """Set when the block ends: a snapshot or a trace, and the address book."""
        self._phases = PhaseSpans()
        self._modules = modules
        self._has_ended = False

    def __repr__(self) -> str:
        if not self._has_ended:
            return f"Recording into {self.folder}, not ended"
        if not self.files:
            return f"Recording into {self.folder}: nothing was recorded"
        main = self.analysis.main
        lines = [f"Recording in {self.folder}: peak {format_bytes(main.peak.bytes)} on {main.name}"]
        lines += [f"  {phase!r}" for phase in self.phases if phase.device == main.name]
        return "\n".join(lines)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A block of code as a phase: ``with recording.phase("forward"):``; phases may nest, and come again.

        It is also a range of torch.profiler of this name, which Perfetto, TensorBoard and the Memory tab show. Outside
        of a ``record`` block it does nothing.
        """
        return self._phases.phase(name)

    @cached_property
    def analysis(self) -> Analysis:
        """The analysis of what was recorded, as ``tbmem.analyze`` makes it.

        Raises:
            UsageError: The block has not ended, or nothing was recorded in it.
            FileFormatError: The file is gone or damaged, or has no allocations.
        """
        if not self._has_ended:
            raise UsageError("the record block has not ended: phases, modules and analysis are known after it")
        if not self.files:
            raise UsageError(f"{self.folder}: nothing was recorded; the log says why")
        recording = read_recording(self.files[0])
        return analyze(recording.timeline, book=recording.book, name=self.folder.name, path=str(self.files[0]))

    @property
    def phases(self) -> tuple[PhaseMemory, ...]:
        """Peak, and net allocation by category, of each phase on each device; errors as for ``analysis``."""
        return phase_table(self.analysis, self._phases.spans)

    @property
    def modules(self) -> tuple[ModuleMemory, ...]:
        """What each module of ``model`` allocates and saves in its forward pass; errors as for ``analysis``.

        Empty without a model, and for one that torch.compile has compiled.
        """
        return module_table(self.analysis, self._modules.spans, self._modules.kinds)

    def to_dict(self) -> dict[str, Any]:
        """Phases, modules, files and the analysis as plain JSON values; errors as for ``analysis``."""
        return {
            "folder": str(self.folder),
            "files": [str(file) for file in self.files],
            "phases": as_plain(self.phases),
            "modules": as_plain(self.modules),
            "analysis": self.analysis.to_dict(),
        }

    def begin(self) -> None:
        """Set the hooks of the modules."""
        self._modules.begin()

    def end(self) -> None:
        """End the phases, and remove the hooks of the modules."""
        self._modules.end()
        self._phases.is_on = False
        self._has_ended = True


@contextmanager
def record(
    name: str = "record",
    *,
    logdir: str = "runs",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    max_entries: int = 100_000,
    redact: bool = False,
) -> Iterator[Recording]:
    """Record the memory of a block of code: training, inference, or anything else.

    ::

        with tbmem.record(model=model, optimizer=optimizer) as recording:
            with recording.phase("forward"):
                loss = model(batch).sum()
            with recording.phase("backward"):
                loss.backward()
        print(recording.phases, recording.modules)

    On CUDA and XPU the allocator's history is written as a snapshot that pytorch.org/memory_viz opens; on other
    devices a torch.profiler trace is written. The files are written after an exception, too. The end of the block waits
    for the disk, half a minute at most.

    Args:
        name: Folder below ``logdir``; numbered (``name_2``) if an earlier run has the name.
        logdir: Folder that holds all runs.
        model: Model whose parameters are named in the address book, and whose modules are measured.
        optimizer: Optimizer whose state is recorded in it.
        max_entries: Allocator events that are kept (snapshot only).
        redact: Whether host and user name, folders and argument values are left out of the files.

    Raises:
        RunFolderError: The folder cannot be written.
        UsageError: ``model`` is no module, ``optimizer`` none, or ``name`` no text.
    """
    if not isinstance(name, str):
        raise UsageError(f"record: name is of type {type(name).__name__}; give a text, the name of a folder")
    if model is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(f"record: model is of type {type(model).__name__}; give a torch.nn.Module, or leave it out")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"record: optimizer is of type {type(optimizer).__name__}; give an optimizer of torch's")
    rank, guard, addresses = find_rank(), Guard(), AddressRecorder()
    redaction = Redaction.of_this_process(keep=[name]) if redact else NOTHING_REDACTED
    folder = open_run_folder(RunConfig(logdir=logdir, name=name), rank, guard, redaction)
    recording = Recording(folder.path, ModuleSpans(model))
    history = MemoryHistory.of_this_process(max_entries)
    if model is not None or optimizer is not None:
        addresses.watch(model, *([optimizer] if optimizer is not None else []))
    with console_handler(), redacted_lines(get_logger().logger, redaction), closing(folder):
        if folder.note and rank.rank == 0:
            get_logger().warning("record: %s", folder.note)
        if history is not None:
            with _history(history, folder, addresses, guard, recording):
                yield recording
        elif profiler_is_busy():
            get_logger().warning("record %r: another torch profiler is running, so nothing is recorded", name)
            try:
                yield recording
            finally:
                recording.end()
        else:
            with _trace(folder, addresses, guard, recording):
                yield recording


def _write_book(book: AddressBook, folder: RunFolder, path: Path, recording: Recording) -> None:
    recording.files.append(folder.write_now(path, book.save))


def _write_window(files: WindowFiles, recording: Recording) -> None:
    recording.files += [path for path in files.write() if path is not None]
    files.close()


@contextmanager
def _history(
    history: MemoryHistory, folder: RunFolder, addresses: AddressRecorder, guard: Guard, recording: Recording
) -> Iterator[None]:
    process = Process.number
    try:
        guard.run(PART, history.start)
        guard.run(PART, addresses.open)
        guard.run(PART, addresses.begin)
        guard.run(PART, recording.begin)
        yield
    finally:
        guard.run("record (switching off)", recording.end)
        try:
            # a forked child that leaves the block has no device, and its parent goes on
            if process == Process.number:
                _write_history(history, folder, addresses, guard, recording)
        finally:
            guard.run("record (switching off)", addresses.close)
            if process == Process.number:
                guard.run("record (switching off)", history.stop)


def _write_history(
    history: MemoryHistory, folder: RunFolder, addresses: AddressRecorder, guard: Guard, recording: Recording
) -> None:
    if history.was_taken:
        get_logger().warning("record: %s", HISTORY_TAKEN)
    elif not history.is_own and not history_is_on():
        get_logger().warning("record: the memory history that was on before has ended, and its events are lost")
    path = folder.snapshot(1)
    data, is_whole = guard.run(PART, history.pickled, redaction=folder.redaction) or (None, True)
    if not is_whole:
        get_logger().warning("record: the ring buffer is full, the first events are lost; raise max_entries")
    book = guard.run(PART, addresses.end, {"snapshot": path.name})
    if data is not None:
        folder.write(path, data, then=lambda: recording.files.append(path))
    if book is not None:
        beside = path.with_name(address_book_name(path.name))
        folder.writer.put(beside.name, _BOOK_BYTES, lambda: _write_book(book, folder, beside, recording))


@contextmanager
def _trace(folder: RunFolder, addresses: AddressRecorder, guard: Guard, recording: Recording) -> Iterator[None]:
    def begin() -> None:
        addresses.open()
        window.prepare()
        window.begin()
        if window.lacks_stacks:
            get_logger().warning("record: %s", NO_STACKS)
        window.begin_step(1)
        recording.begin()

    def finish() -> None:
        if window.is_cut:
            get_logger().warning(
                "record: the program has set a profile function; the stacks are incomplete from there on"
            )
        if window.is_recording:
            guard.run(PART, window.finish, complete=True)
            if (files := window.files) is not None:
                write = partial(_write_window, files, recording)
                folder.writer.put(files.trace.name, files.size, write, dropped=files.close)

    def give_way() -> None:
        get_logger().warning("record: the program starts a torch profiler of its own; what follows is not recorded")
        finish()

    window = Window(ProfilingConfig(), folder, number=1, addresses=addresses, give_way=give_way)
    try:
        with Unseen():
            guard.run(PART, begin)
        yield
    finally:
        guard.run("record (switching off)", recording.end)
        try:
            finish()
        finally:
            guard.run("record (switching off)", window.discard)
            guard.run("record (switching off)", addresses.close)
