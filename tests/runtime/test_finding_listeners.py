"""Findings reach the user's functions, whatever these do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tbmem import MemoryCallback
from tbmem.errors import UsageError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.runtime import finding_listeners
from tbmem.runtime.finding_listeners import FindingListeners, listeners_of
from tbmem.runtime.process.guard import Guard

FROM_A_PACKAGE: list[Finding] = []
"""What the listener of an installed package has heard."""


def _finding(kind: FindingKind, step: int = 1) -> Finding:
    about: dict[str, Any] = {"severity": Severity.WARNING, "device": "cpu", "message": "", "evidence": {}}
    return Finding(kind=kind, first_step=step, last_step=step, **about)


def test_what_is_shown_is_heard_and_suspicions_are_not() -> None:
    # given
    heard: list[FindingKind] = []
    listeners = FindingListeners([lambda finding: heard.append(finding.kind)], Guard())
    # when
    listeners.write([_finding(kind) for kind in (FindingKind.SUSPECT, FindingKind.LEAK, FindingKind.SPIKE)])
    listeners.close()
    # then
    assert heard == [FindingKind.LEAK, FindingKind.SPIKE]


@pytest.mark.parametrize("given", ["mail", ["mail"], 3, [print, None]])
def test_what_cannot_be_called_is_refused_before_the_first_step(given: Any) -> None:
    with pytest.raises(UsageError, match="on_finding is .*; give a function"):
        MemoryCallback(on_finding=given)


@pytest.mark.parametrize("given", [lambda: None, [print, lambda finding, other: None]])
def test_what_cannot_be_called_with_a_finding_is_refused_too(given: Any) -> None:
    with pytest.raises(UsageError, match="cannot be called with one Finding"):
        listeners_of(given)


def test_one_function_or_several() -> None:
    assert listeners_of(print) == (print,)
    assert listeners_of([print, repr]) == (print, repr)


def test_one_that_goes_on_raising_is_told_and_switched_off_and_the_others_are_called() -> None:
    # given
    heard, calls, guard = [], [], Guard()

    def broken(finding: Finding) -> None:
        calls.append(finding)
        raise ConnectionError("no network\nat all")

    listeners = FindingListeners([broken, heard.append], guard)
    # when
    listeners.write([_finding(FindingKind.LEAK)] * 5)
    listeners.close()
    # then
    assert len(calls) == 3
    assert len(heard) == 5
    first, _, last = guard.problems
    assert "broken failed for LEAK at step" in first
    assert first.endswith(": ConnectionError: no network")
    assert last.endswith("broken is off: ConnectionError: no network")


def test_one_that_fails_now_and_then_stays_on() -> None:
    # given: a web server that is away for every second finding
    calls, guard = [], Guard()

    def unsteady(finding: Finding) -> None:
        calls.append(finding)
        if len(calls) % 2:
            raise TimeoutError

    listeners = FindingListeners([unsteady], guard)
    # when
    listeners.write([_finding(FindingKind.LEAK)] * 9)
    listeners.close()
    # then
    assert len(calls) == 9
    assert not any("is off" in problem for problem in guard.problems)


def test_one_that_exits_ends_neither_the_thread_nor_the_others() -> None:
    # given
    heard, guard = [], Guard()

    def leave(finding: Finding) -> None:
        raise SystemExit(3)

    listeners = FindingListeners([leave, heard.append], guard)
    # when
    listeners.write([_finding(FindingKind.LEAK), _finding(FindingKind.SPIKE)])
    listeners.close()
    # then
    assert len(heard) == 2
    assert guard.problems[0].endswith(": SystemExit: 3")


def test_one_that_hangs_holds_up_neither_the_log_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(finding_listeners, "_JOIN_SECONDS", 0.1)
    hanging = threading.Event()
    guard = Guard()
    listeners = FindingListeners([lambda finding: hanging.wait()], guard)
    # when more findings come than can wait
    began = time.monotonic()
    listeners.write([_finding(FindingKind.SPIKE, step) for step in range(500)])
    thread = listeners._worker._thread
    listeners.close()
    took = time.monotonic() - began
    hanging.set()
    assert thread is not None
    thread.join(10)
    # then it is told that they were not all heard of
    assert took < 5
    assert guard.problems == ["on_finding: 500 findings were not passed on in whole within 0.1 s of the end of the run"]


def test_an_installed_package_is_called_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    entry = EntryPoint("alerts", f"{__name__}:FROM_A_PACKAGE.append", finding_listeners.GROUP)
    monkeypatch.setattr(finding_listeners, "entry_points", lambda group: [entry] if group == entry.group else [])
    listeners = FindingListeners([], Guard())
    # when
    listeners.write([_finding(FindingKind.LEAK)])
    listeners.close()
    # then
    assert [finding.kind for finding in FROM_A_PACKAGE] == [FindingKind.LEAK]


_LEAKS = """
import sys, time
from pathlib import Path
from tbmem.runtime.monitor import MemoryMonitor

kept, heard = [], []
with MemoryMonitor(folder=Path(sys.argv[1]), on_finding=[heard.append], console=False) as monitor:
    for _ in range(4000):
        kept.append(bytearray(1 << 16))
        time.sleep(0.002)
        monitor.step()
        if heard:
            break
print(*(finding.kind.value for finding in heard))
"""


def test_in_a_run_a_leak_is_heard(tmp_path: Path) -> None:
    # given a process of its own: the heap of earlier tests has room for all that is kept
    command = [sys.executable, "-c", _LEAKS, str(tmp_path)]
    # when
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # then
    assert "leak" in done.stdout.split()
