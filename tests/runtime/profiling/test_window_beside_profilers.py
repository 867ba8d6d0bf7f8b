"""Windows and ``record`` beside a profiler of Python calls of the program's: its results are whole."""

from __future__ import annotations

import cProfile
import gzip
import json
import logging
import pstats
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tbmem
from tbmem import MemoryProfiler

TrainStep = Callable[[], None]


@pytest.fixture(autouse=True)
def nobody_profiles() -> Iterator[None]:
    """A coverage tool of the tests' own is out of the way."""
    before = sys.getprofile()
    sys.setprofile(None)
    yield
    sys.setprofile(before)


class Calls:
    """Counts the calls of ``train_step`` with ``sys.setprofile``, and gives back what was set before."""

    def __init__(self, step: TrainStep) -> None:
        self._code: Any = step.__code__  # type: ignore[attr-defined]
        self.seen = 0

    def start(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._see)

    def _see(self, frame: Any, event: str, argument: object) -> None:
        self.seen += event == "call" and frame.f_code is self._code

    def stop(self) -> None:
        sys.setprofile(self._before)


class CProfile(Calls):
    """The same with cProfile."""

    def start(self) -> None:
        self._profile: Any = cProfile.Profile()
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()
        stats: Any = pstats.Stats(self._profile)
        place = (self._code.co_filename, self._code.co_firstlineno, self._code.co_name)
        self.seen = stats.stats[place][1]


def _has_stacks(trace: Path) -> bool:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return any(event.get("cat") == "python_function" for event in events)


@pytest.mark.parametrize("kind", [Calls, CProfile])
@pytest.mark.parametrize(
    ("start", "stop", "windows", "said"),
    [
        (1, 8, [[2, 3], [5, 6]], "no stacks"),  # on all the time
        (2, 2, [[5, 6], [8]], "window 1 is postponed by 3 steps"),  # within a recorded step
        (3, 4, [[2], [5, 6]], "window 1 ends after step 2"),  # across the end of a window
        (1, 2, [[2, 3], [5, 6]], "no stacks"),  # across its start
    ],
)
def test_the_program_profiles_its_calls(
    kind: type[Calls],
    start: int,
    stop: int,
    windows: list[list[int]],
    said: str,
    tmp_path: Path,
    train_step: TrainStep,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # given windows of two steps
    own = kind(train_step)
    profiler = MemoryProfiler(folder=tmp_path, wait=0, warmup=1, active=2, repeat=2)
    # when the program profiles some steps, of a run that has more of them than the windows
    with caplog.at_level(logging.WARNING, "tbmem"), profiler:
        for step in range(1, 9):
            if step == start:
                own.start()
            train_step()
            if step == stop:
                own.stop()
            profiler.step()
    # then it has seen all of them
    assert own.seen == stop - start + 1
    # and tbmem says once what it leaves out, where Python has one function for both of them
    if kind is Calls or sys.version_info < (3, 12):
        assert [said in line for line in caplog.messages] == [True]
        assert [window.steps for window in profiler.ledger.windows] == windows
    else:
        assert not caplog.messages
    # and nothing is left on
    assert sys.getprofile() is None


def test_record_has_no_stacks_then(tmp_path: Path, train_step: TrainStep, capsys: pytest.CaptureFixture[str]) -> None:
    own = Calls(train_step)
    own.start()
    with tbmem.record(logdir=str(tmp_path)) as recording:
        train_step()
    own.stop()
    assert own.seen == 1
    assert not _has_stacks(recording.files[0])
    assert recording.analysis.main.peak.bytes > 0
