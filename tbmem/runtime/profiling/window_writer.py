"""Has windows written in the background, and deletes the files of those that are one too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tbmem.model.finding import Finding
from tbmem.model.monitor_log import WindowRecord
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.profiling.rotation import windows_to_delete
from tbmem.runtime.profiling.window_files import WindowFiles
from tbmem.runtime.profiling.window_ledger import WindowLedger, WindowResult
from tbmem.units import format_bytes


class WindowWriter:
    """Writes windows that have ended, in the thread of the run folder's files.

    Args:
        keep: Windows whose files are kept; 0 keeps all.
        ledger: Of the run's windows.
        guard: Handles errors.
        log: Logs a line.
        on_window: Called with each window that was written.
        findings: Returns what was found in the run so far.
    """

    def __init__(
        self,
        keep: int,
        ledger: WindowLedger,
        guard: Guard,
        log: Callable[..., None],
        on_window: Callable[[WindowRecord], object],
        findings: Callable[[], Iterable[Finding]],
    ) -> None:
        self._keep = keep
        self._ledger = ledger
        self._guard = guard
        self._log = log
        self._on_window = on_window
        self._findings = findings

    def put(self, result: WindowResult, files: WindowFiles) -> None:
        """Have a window written; never waits."""
        self._ledger.add(result)
        write, dropped = partial(self._write, result, files), partial(self._drop, result, files)
        files.folder.writer.put(f"window {result.number}", files.size, write, group="windows", dropped=dropped)

    def _write(self, result: WindowResult, files: WindowFiles) -> None:
        """Make a window's records files; called again after an OSError."""
        result.trace, result.address_book, result.snapshot = files.write()
        size = sum(path.stat().st_size for path in result.files)  # deleted meanwhile, they are written again
        files.close()
        self._ledger.written(result, size)
        self._log("profiler · window %d written: %s (%s)", result.number, result.trace.name, format_bytes(size))
        names = tuple(path.name for path in result.files)
        first, last = result.steps[0], result.steps[-1]
        self._on_window(
            WindowRecord(number=result.number, first_step=first, last_step=last, complete=result.complete, files=names)
        )
        self._guard.run("profiling.keep", self._delete)

    def _drop(self, result: WindowResult, files: WindowFiles) -> None:
        files.close()
        self._ledger.remove(result)

    def _delete(self) -> None:
        written = [window for window in self._ledger.windows if window.trace is not None]
        for window in windows_to_delete(written, self._findings(), self._keep):
            for path in window.files:
                path.unlink(missing_ok=True)
            self._ledger.remove(window)
            if self._ledger.deleted == 1:
                self._log(
                    "profiler · the files of window %d are deleted: those of %d windows are kept (profiling.keep)",
                    *(window.number, self._keep),
                )
