"""Reports why memory ran out, or nearly did: text file, finding and snapshot."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tbmem.analysis.diagnosis.advice import ADVICE
from tbmem.analysis.diagnosis.oom_cause import reasons_of
from tbmem.config.schema import OomConfig, SnapshotConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import LogRecord
from tbmem.model.oom import Limit, OomEvent, OomReport, RunContext
from tbmem.present.lines import get_logger
from tbmem.present.text.oom_report import near_sentence, shortage_lines, shortage_sentence
from tbmem.runtime.oom import cuda_observer as oom_observer
from tbmem.runtime.oom.cuda_observer import FailedRequest
from tbmem.runtime.oom.sigterm import forget_sigterm, on_sigterm
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Process
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.sources.counters.memory_limits import HostState, host_state
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tbmem.sources.torch_state.out_of_memory import device_of, out_of_memory_in, requested_bytes
from tbmem.units import MIB, format_bytes

PART = "out-of-memory report"
_REPORTS = 3
_SHARE_OF_TIME = 0.01
"""The first ``_REPORTS`` failed requests of a run are examined, later ones within this share of the time: a loop
that tries smaller batches, or a library that tries algorithms, must not be slowed down."""
_AHEAD, _AHEAD_FROM = 3.0, 0.75
"""Seconds for which the use of the host's memory is extrapolated, once this share of it is in use."""
_RESERVE = 32 * MIB
"""Addresses that are kept where they are limited, and given back for the report of why they ran out. No page of them is
ever touched, so that they are no memory."""
_NO_ROOM = "no memory was left to look at what holds it"


class _Reported(NamedTuple):
    """Report of a failed request that may or may not end the run, and the names of its files."""

    report: OomReport
    files: tuple[str, ...] = ()


class Run(Protocol):
    """The monitored run; ``flush`` writes pending records after a SIGTERM, with whether the process ends now."""

    def situation(self) -> RunContext: ...  # noqa: D102
    def report(self, finding: Finding) -> None: ...  # noqa: D102
    def log(self, record: LogRecord) -> None: ...  # noqa: D102
    def flush(self, ends: bool) -> None: ...  # noqa: D102


class FlightRecorder:
    """Reports why memory ran out, while the allocations still exist.

    Exceptions are not suppressed, and nothing is allocated on a device. Without a folder no file is written; ``wrote``
    is called with each snapshot that was.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        config: OomConfig,
        snapshot: SnapshotConfig,
        guard: Guard,
        *,
        console: bool = True,
        wrote: Callable[[Path], None] = lambda path: None,
        host: Callable[[], HostState] = host_state,
    ) -> None:
        self._folder = folder
        self._config = config
        self._snapshot = snapshot
        self._guard = guard
        self._console = console
        self._wrote = wrote
        self._host = host
        self._run: Run
        self._pending: _Reported | None = None
        self._reports, self._next_report = 0, 0.0
        self._is_busy = self._heeds_sigterm = self._has_warned = False
        self._pid = Process.number
        self._before: tuple[float, int] | None = None
        self._limit: Limit | None = None  # the host's nearest one, as of the last look at it
        self._reserve: mmap.mmap | None = None
        self._given_back: int | None = None  # bytes of it, once it is no longer kept
        self._near_file = ""

    def open(self, run: Run) -> None:
        """Start to observe the allocator; SIGTERM is handled from the first step on, or ``heed_sigterm``."""
        self._run = run
        if self._config.enabled:
            oom_observer.listen(self._device_failed)

    def heed_sigterm(self) -> None:
        """Handle SIGTERM from now on, also where another handler has taken the place of this one."""
        if self._config.sigterm:
            on_sigterm(self._run.flush)

    def close(self) -> None:
        """Stop observing the allocator and SIGTERM."""
        oom_observer.stop_listening(self._device_failed)
        self._give_back()
        forget_sigterm(self._run.flush)

    def settle(self) -> None:
        """After further steps, log a failed request that did not end the run."""
        if not self._heeds_sigterm:
            # not earlier: trainers install handlers of their own at their start and restore the previous ones
            self._heeds_sigterm = True
            self.heed_sigterm()
        pending = self._pending
        if pending is not None and self._run.situation().step > pending.report.shortage.step:
            self._pending = None
            self._log_caught(pending)

    def end(self, error: BaseException | None) -> bool:
        """End the run; report why memory ran out, if it did. Returns whether a snapshot of that moment was written."""
        if not self._config.enabled:
            return False
        self._give_back()
        pending, self._pending = self._pending, None
        oom_error = out_of_memory_in(error)
        if pending is not None:
            fits = error is None if oom_error is None else device_of(oom_error) != "cpu"
            if fits and pending.report.shortage.step >= self._run.situation().step:
                if oom_error is not None and not pending.report.holdings:
                    # a brief report: the exception's frames have the holders
                    back = self._look_back(oom_error)
                    report = replace(pending.report, holdings=back.holdings, seen=back.seen, notes=back.notes)
                    pending = _Reported(report, pending.files)
                self._report(pending, oom_error)
                return bool(pending.files)
            self._log_caught(pending)
        if oom_error is not None:
            self._report(_Reported(self._look_back(oom_error)), oom_error)
        return False

    def look_at_host(self, limit: Limit) -> None:
        """Warn once, with a report, when the host's or container's memory is nearly exhausted: its tightest limit."""
        has_room = limit.counts_addresses and limit.free > 2 * _RESERVE
        if self._reserve is None and self._given_back is None and has_room:
            with contextlib.suppress(OSError):  # other threads may have taken what was free
                self._reserve = mmap.mmap(-1, _RESERVE)
        self._limit = limit
        if not self._has_warned and self._config.enabled and self._is_near(limit):
            self._has_warned = True
            # the kernel kills without a message
            self._guard.run(PART, self._report_near, self._host())

    def _give_back(self) -> None:
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.close()
        self._given_back = self._given_back or (0 if reserve is None else _RESERVE)

    def _is_near(self, limit: Limit) -> bool:
        now = time.monotonic()
        before, self._before = self._before, (now, limit.free)
        least = limit.total * (1 - self._config.host_percent / 100)
        if limit.free <= least:
            return True
        if before is None or limit.free > limit.total * (1 - _AHEAD_FROM):
            return False
        pace = (before[1] - limit.free) / max(now - before[0], 1e-3)
        return limit.free - _AHEAD * pace <= least

    def _device_failed(self, request: FailedRequest) -> None:
        """Report a failed CUDA request, in the requesting thread, before the stack is unwound."""
        if self._is_busy or self._pid != Process.number or PART in self._guard.failed:
            return
        self._is_busy = True
        began = time.monotonic()
        try:
            if self._reports < _REPORTS or began >= self._next_report:
                self._reports += 1
                self._pending = self._guard.run(PART, self._report_of_request, request)
                ended = time.monotonic()
                self._next_report = ended + (ended - began) / _SHARE_OF_TIME
            else:
                self._pending = _Reported(_shortages().brief_device_report(request, self._run.situation()))
        finally:
            self._is_busy = False

    def _report_of_request(self, request: FailedRequest) -> _Reported:
        history = MemoryHistory.of_this_process(self._snapshot.max_entries)
        snapshot = history.take() if history is not None else None
        files: tuple[str, ...] = ()
        if self._folder is not None and history is not None and self._snapshot.enabled and self._snapshot.on_oom:
            path, (data, _) = self._folder.snapshot("oom"), history.pickled(snapshot, self._folder.redaction)
            self._folder.write(path, data, then=lambda: self._wrote(path))
            files = (path.name,)
        return _Reported(_shortages().device_report(request, self._run.situation(), snapshot), files)

    def _look_back(self, error: BaseException) -> OomReport:
        situation = self._run.situation()
        report = self._guard.run(PART, lambda: _shortages().error_report(error, situation, self._given_back or 0))
        return report or self._brief_report(error, situation)

    def _brief_report(self, error: BaseException, situation: RunContext) -> OomReport:
        """What is known without looking at anything."""
        device, last = device_of(error), situation.last.get("cpu")
        is_host = device == "cpu"
        shortage = OomEvent(
            device=device,
            step=situation.step,
            requested=requested_bytes(error),
            limits=(self._limit,) if is_host and self._limit is not None else (),
            process=last.host_rss if is_host and last is not None else None,
            error=type(error).__name__,
        )
        note = f"{_NO_ROOM}; {self._near_file} was written shortly before" if self._near_file else _NO_ROOM
        return OomReport(shortage=shortage, reasons=reasons_of(shortage, situation.findings), notes=(note,))

    def _report(self, pending: _Reported, error: BaseException | None) -> None:
        reason = " ".join(str(error).split()) if error is not None else ""
        more = ["", f"error: {reason}"] if reason else []
        kind = type(error).__name__ if error is not None else pending.report.shortage.error
        self._publish(FindingKind.OOM, pending, shortage_sentence(pending.report), "oom", more, error=kind)

    def _log_caught(self, pending: _Reported) -> None:
        shortage = pending.report.shortage
        get_logger().info(
            "step %d · a request of %s on %s failed and training continued: the error was handled, or a library tried"
            " an alternative that needs less",
            *(shortage.step, format_bytes(shortage.requested or 0), shortage.device),
        )
        self._run.log({"type": "caught", "time": time.time(), "files": list(pending.files), **pending.report.to_dict()})

    def _report_near(self, host: HostState) -> None:
        report = _shortages().host_report(host, self._run.situation())
        self._publish(FindingKind.NEAR_CAPACITY, _Reported(report), near_sentence(report), "near-limit")

    def _publish(
        self, kind: FindingKind, pending: _Reported, message: str, word: str, more: Sequence[str] = (), **evidence: str
    ) -> None:
        report, shortage, files = pending.report, pending.report.shortage, list(pending.files)
        lines = shortage_lines(report)
        if self._folder is not None:
            text = "\n".join([message, "", *lines, *more]) + "\n"
            path = self._folder.shortage(word)
            self._folder.write(path, self._folder.redaction.text(text).encode())
            files.append(path.name)
            if kind is FindingKind.NEAR_CAPACITY:
                self._near_file = path.name
        self._run.report(
            Finding(
                kind=kind,
                severity=Severity.CRITICAL,
                device=shortage.device,
                rank=self._run.situation().rank,
                first_step=shortage.step,
                last_step=shortage.step,
                message=message,
                evidence={**evidence, **report.to_dict(), "files": files},
                advice=report.reasons[0].advice if report.reasons else ADVICE[kind],
            )
        )
        if self._console:
            # as one message: other threads log as well
            get_logger().warning("%s", "\n  ".join(lines))


def _shortages() -> Any:
    """The report module, imported late: it takes a tenth of the start-up of `tbmem run`."""
    from tbmem.runtime.oom import report as shortages

    return shortages
