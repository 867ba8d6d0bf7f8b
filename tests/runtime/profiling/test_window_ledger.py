"""What a run keeps of its windows."""

from __future__ import annotations

from pathlib import Path

from tbmem.runtime.profiling.window_ledger import WindowLedger, WindowResult


def _window(number: int) -> WindowResult:
    trace, snapshot = Path(f"{number}.pt.trace.json.gz"), Path(f"{number}.snapshot.pickle")
    steps = [10 * number, 10 * number + 1]
    return WindowResult(
        number=number,
        steps=steps,
        complete=number > 1,
        trace=trace,
        snapshot=snapshot,
        step_seconds=[0.2, 0.4],
        writing_seconds=0.5,
        host_before=100,
        host_after=100 + number,
    )


def test_files_of_windows_are_those_that_are_left() -> None:
    # given
    ledger, windows = WindowLedger(), [_window(number) for number in (1, 2, 3)]
    for window in windows:
        ledger.add(window)
        ledger.written(window, size=1000)
    # when
    ledger.remove(windows[1])
    # then
    assert ledger.recorded == {windows[0].trace: range(10, 12), windows[2].trace: range(30, 32)}
    assert ledger.files == [windows[0].trace, windows[2].trace, windows[0].snapshot, windows[2].snapshot]
    assert (ledger.complete, ledger.deleted) == (2, 1)


def test_the_cost_is_that_of_all_windows_also_of_deleted_ones() -> None:
    # given
    ledger, windows = WindowLedger(), [_window(number) for number in (1, 2)]
    ledger.plain_steps += [0.1, 0.1, 0.3]
    for window in windows:
        ledger.add(window)
        ledger.written(window, size=1000)
    ledger.remove(windows[0])
    # when
    cost = ledger.cost()
    # then
    assert cost is not None
    assert (cost.windows, cost.recorded_steps, cost.trace_bytes, cost.host_bytes) == (2, 4, 2000, 2)
    assert cost.recorded_step_seconds is not None
    assert abs(cost.recorded_step_seconds - 0.3) < 1e-9
    assert (cost.plain_step_seconds, cost.writing_seconds) == (0.1, 1.0)


def test_a_run_without_a_recorded_step_has_no_cost() -> None:
    assert WindowLedger().cost() is None
