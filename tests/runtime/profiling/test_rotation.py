"""Which windows' files are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tbmem.model.finding import Finding
from tbmem.runtime.profiling.rotation import windows_to_delete
from tbmem.runtime.profiling.window_ledger import WindowResult
from tests.spikes import spike_in_a_window


def _windows(count: int, highest: int = 0) -> list[WindowResult]:
    """Windows of three steps in each ten."""
    return [
        WindowResult(
            number=number,
            steps=[10 * number, 10 * number + 1, 10 * number + 2],
            trace=Path(f"{number}.json.gz"),
            peak=1000 if number == highest else number % 3,
        )
        for number in range(1, count + 1)
    ]


def _finding(step: int = 0, **evidence: Any) -> Finding:
    return spike_in_a_window(step, evidence)


def _kept(windows: list[WindowResult], findings: list[Finding], keep: int) -> list[int]:
    deleted = windows_to_delete(windows, findings, keep)
    return [window.number for window in windows if window not in deleted]


def test_the_first_the_highest_those_with_findings_and_the_newest_are_kept() -> None:
    findings = [_finding(71), _finding(51, member_steps=[31, 41, 51])]

    assert _kept(_windows(20, highest=9), findings, 7) == [1, 3, 4, 5, 7, 9, 20]
    assert _kept(_windows(20, highest=9), [], 5) == [1, 9, 18, 19, 20]


def test_a_file_that_a_finding_names_is_never_deleted() -> None:
    findings = [_finding(files=[f"{number}.json.gz"]) for number in (2, 3, 4)]

    assert _kept(_windows(9), findings, 1) == [2, 3, 4]


def test_many_findings_do_not_keep_more_than_asked_for() -> None:
    findings = [_finding(10 * number) for number in range(1, 21)]

    assert _kept(_windows(20, highest=4), findings, 5) == [1, 4, 18, 19, 20]


def test_all_are_kept_below_the_limit_and_with_0() -> None:
    assert _kept(_windows(9), [], 9) == list(range(1, 10))
    assert _kept(_windows(50), [], 0) == list(range(1, 51))
