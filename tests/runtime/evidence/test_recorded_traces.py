"""What the end of a run asks its traces, in the thread that has written them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tbmem.analysis.detector.spike_test import Confirmation
from tbmem.analysis.diagnosis.spike_source import SpikeSources
from tbmem.runtime.evidence import spike_explainer
from tbmem.runtime.evidence.recorded_traces import RecordedTraces
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.window_ledger import WindowLedger, WindowResult


def _traces(folder: Path, ledger: WindowLedger, guard: Guard) -> RecordedTraces:
    return RecordedTraces(ledger, RunFolder(folder, guard=guard), guard, time.monotonic() + 10)


@pytest.mark.parametrize(
    ("step", "height", "is_confirmed"),
    [(5, 900, True), (5, 1100, False), (4, 900, True), (6, 50, False), (9, 50, False)],
)
def test_a_recorded_step_is_compared_in_the_traces(
    step: int, height: int, is_confirmed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given two high steps of four
    threads: list[str] = []

    def levels(traces: dict[Path, range], step: int) -> dict[int, int]:
        threads.append(threading.current_thread().name)
        return {4: 620, 5: 600, 6: 100, 12: 98}

    trace, sources = Path("w.json"), SpikeSources()
    monkeypatch.setattr(spike_explainer, "recorded_levels", levels)
    monkeypatch.setattr(spike_explainer, "recorded_sources", lambda traces, step: (trace, sources))
    ledger = WindowLedger(windows=[WindowResult(number=1, prepared=2, steps=[4, 5, 6])])
    # when
    found = _traces(tmp_path, ledger, Guard()).confirms(step, height)
    # then the trace is read in the thread that has written it
    assert found == (Confirmation(trace.name, sources) if is_confirmed else None)
    assert threads != [threading.current_thread().name]


def test_in_a_warm_up_nothing_lies_between_the_tensors(tmp_path: Path) -> None:
    ledger = WindowLedger(windows=[WindowResult(number=1, prepared=2, steps=[4, 5])])
    traces = _traces(tmp_path, ledger, Guard())

    known = [traces.confirms(step, 100) for step in range(1, 5)]
    assert known == [None, Confirmation(), Confirmation(), None]


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
    assert _traces(tmp_path, WindowLedger(), Guard()).confirms(5, 100) is None
    assert RecordedTraces(WindowLedger(), None, Guard(), 0.0).explained([]) == []
