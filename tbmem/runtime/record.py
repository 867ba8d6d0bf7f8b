"""Records the allocations of a block of code as a snapshot or a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.recordings.span_tables import module_table, phase_table
from tbmem.config.schema import ProfilingConfig, RunConfig
from tbmem.errors import UsageError
from tbmem.model.span import ModuleMemory, PhaseMemory, as_plain
from tbmem.present.lines import console_handler, get_logger
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import find_rank
from tbmem.runtime.process.run_folder import RunFolder, open_run_folder
from tbmem.runtime.profiling.address_recorder import AddressRecorder
from tbmem.runtime.profiling.spans import ModuleSpans, PhaseSpans
from tbmem.runtime.profiling.window import HISTORY_TAKEN, NO_STACKS, Window, profiler_is_busy
from tbmem.sources.recording import read_recording
from tbmem.sources.torch_state.memory_history import MemoryHistory, history_is_on
from tbmem.units import format_bytes

PART = "record"


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
    devices a torch.profiler trace is written. The files are written after an exception, too.

    Args:
        name: Folder below ``logdir``; numbered (``name_2``) if an earlier run has the name.
        logdir: Folder that holds all runs.
        model: Model whose parameters are named in the address book, and whose modules are measured.
        optimizer: Optimizer whose state is recorded in it.
        max_entries: Allocator events that are kept (snapshot only).

    Raises:
        RunFolderError: The folder cannot be written.
    """
    rank, guard, addresses = find_rank(), Guard(), AddressRecorder()
    folder = open_run_folder(RunConfig(logdir=logdir, name=name), rank)
    recording = Recording(folder.path, ModuleSpans(model))
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
            try:
                yield recording
            finally:
                recording.end()
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
    guard.run(PART, recording.begin)
    try:
        yield
    finally:
        guard.run("record (switching off)", recording.end)
        try:
            if history.was_taken:
                get_logger().warning("record: %s", HISTORY_TAKEN)
            elif not history.is_own and not history_is_on():
                get_logger().warning("record: the memory history that was on before has ended, and its events are lost")
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
        guard.run("record (switching off)", recording.end)
        try:
            finish()
        finally:
            guard.run("record (switching off)", window.discard)
            guard.run("record (switching off)", addresses.close)
