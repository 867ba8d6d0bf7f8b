"""Whose work the stacks of a sampling profiler show."""

from __future__ import annotations

import pytest

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT

_OVERHEAD = load(PROJECT / "benchmarks" / "sampled_overhead.py")
PACKAGE, PROGRAM = _OVERHEAD.PACKAGE, _OVERHEAD.PROGRAM
_MAIN = f"main ({PACKAGE}/cli/entry.py:16)"
_PREPARE = f"LaunchSpec.prepare ({PACKAGE}/cli/launch.py:62)"
_SCRIPT = f"Program.run ({PACKAGE}/runtime/launch/script.py:88)"
_THREAD = "Thread._bootstrap (/usr/lib/python3.11/threading.py:1002)"


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        ([_MAIN, _PREPARE, "<module> (/site-packages/torch/__init__.py:2)"], PROGRAM),
        ([_MAIN, _PREPARE, f"<module> ({PACKAGE}/config/load.py:2)"], "start and end"),
        ([_MAIN, _SCRIPT, "<module> (train.py:3)"], PROGRAM),
        (
            [_MAIN, _SCRIPT, "<module> (train.py:9)", f"_after_step ({PACKAGE}/runtime/process/optimizer_hook.py:39)"],
            "steps",
        ),
        (
            [
                _MAIN,
                _SCRIPT,
                f"_after_step ({PACKAGE}/runtime/process/optimizer_hook.py:39)",
                "adam (/torch/optim/adam.py:9)",
            ],
            PROGRAM,
        ),
        ([f"_end ({PACKAGE}/runtime/launch/program.py:250)"], "start and end"),
        ([_THREAD, f"PeakLines.look ({PACKAGE}/runtime/evidence/peak_lines.py:218)"], "threads"),
        ([_THREAD, f"_Timer.wait ({PACKAGE}/runtime/evidence/step_timer.py:101)"], PROGRAM),
        ([_THREAD, "_worker (/site-packages/torch/utils/data/_utils/pin_memory.py:20)"], PROGRAM),
    ],
)
def test_a_stack_shows_whose_work_it_is(frames: list[str], part: str) -> None:
    assert _OVERHEAD.part_of(frames) == part


def test_samples_are_counted_by_part() -> None:
    # given lines of py-spy's raw format
    lines = [f"{_MAIN};{_SCRIPT};<module> (train.py:3) 40", f"{_THREAD};write ({PACKAGE}/model/files.py:94) 2"]
    # when
    samples = _OVERHEAD.counted(lines)
    # then
    assert samples == {PROGRAM: 40, "threads": 2}
