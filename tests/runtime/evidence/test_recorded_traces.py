"""What the end of a run asks its traces, in the thread that has written them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tbmem.analysis.detector.recorded_peaks import Confirmation
from tbmem.runtime.evidence import spike_explainer
from tbmem.runtime.evidence.recorded_traces import RecordedTraces
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.window_ledger import WindowLedger, WindowResult


def _traces(folder: Path, ledger: WindowLedger, guard: Guard) -> RecordedTraces:
    return RecordedTraces(ledger, RunFolder(folder, guard=guard), guard, time.monotonic() + 10)


@pytest.mark.parametrize(("height", "is_confirmed"), [(900, True), (1100, False)])
def test_a_recorded_step_is_compared_in_its_trace(
    height: int, is_confirmed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    threads: list[str] = []

    def excess(traces: dict[Path, range], step: int) -> int:
        threads.append(threading.current_thread().name)
        return 100 * step

    monkeypatch.setattr(spike_explainer, "recorded_excess", excess)
    ledger = WindowLedger(windows=[WindowResult(number=1, prepared=2, steps=[4, 5])])
    # when
    found = _traces(tmp_path, ledger, Guard()).confirms(5, height)
    # then the trace is read in the thread that has written it
    assert found is (Confirmation.RECORDED if is_confirmed else Confirmation.NONE)
    assert threads != [threading.current_thread().name]


def test_in_a_warm_up_nothing_lies_between_the_tensors(tmp_path: Path) -> None:
    ledger = WindowLedger(windows=[WindowResult(number=1, prepared=2, steps=[4, 5])])
    traces = _traces(tmp_path, ledger, Guard())

    known = [traces.confirms(step, 100) for step in range(1, 5)]
    assert known == [Confirmation.NONE, Confirmation.WARM_UP, Confirmation.WARM_UP, Confirmation.NONE]


def test_an_error_is_a_problem_of_the_run_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    def broken(*arguments: object) -> None:
        raise ValueError("damaged")

    monkeypatch.setattr(spike_explainer, "explain_spikes", broken)
    guard = Guard()
    # when
    found = _traces(tmp_path, WindowLedger(windows=[WindowResult(number=1)]), guard).explained([])
    # then
    assert found == []
    assert guard.problems == ["window spikes is off: ValueError: damaged"]


def test_without_windows_or_a_folder_nothing_is_asked(tmp_path: Path) -> None:
    assert _traces(tmp_path, WindowLedger(), Guard()).confirms(5, 100) is Confirmation.NONE
    assert RecordedTraces(WindowLedger(), None, Guard(), 0.0).explained([]) == []
