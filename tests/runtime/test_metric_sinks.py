"""Sinks are found by name, receive what they are due, and never harm the run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tbmem import ConfigError, MemoryCallback, MemoryMonitor, MissingDependencyError
from tbmem.integrations.base import TrainingSession
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample_row import SampleRow
from tbmem.present.scalars import scalar_values
from tbmem.runtime import metric_sinks
from tbmem.runtime.metric_sinks import MetricSink, MetricSinks, Point, RunInfo, Summary, find_sinks
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Rank
from tests.conftest import MakeSample


class ListSink(MetricSink):
    """Keeps what it receives."""

    name = "list"

    def __init__(self, has_run: bool = True) -> None:
        self.has_run = has_run
        self.calls: list[str] = []
        self.points: list[Point] = []
        self.findings: list[Finding] = []
        self.summaries: list[Summary] = []

    def join(self) -> bool:
        return self.has_run

    def open(self, run: RunInfo) -> None:
        self.calls.append(f"open {run.label}")

    def log(self, points: Sequence[Point]) -> None:
        self.points += points

    def alert(self, finding: Finding) -> None:
        self.findings.append(finding)

    def summarize(self, summary: Summary) -> None:
        self.summaries.append(summary)

    def close(self) -> None:
        self.calls.append("close")


class BrokenSink(ListSink):
    name = "broken"

    def log(self, points: Sequence[Point]) -> None:
        raise ConnectionError("no network")


def _finding(kind: FindingKind, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(kind=kind, severity=severity, device="cpu", first_step=1, last_step=2, message="text")


def _loop(sink: MetricSink | str, train_step: Callable[[], None], folder: Path, steps: int = 30) -> MemoryCallback:
    with MemoryCallback("light", run={"logdir": str(folder), "name": "run"}, sinks=[sink]) as memory:
        for _ in range(steps):
            train_step()
            memory.step()
    return memory


# by name


def test_a_name_that_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"^output.sinks: no sink 'wandbb'; did you mean wandb\?$"):
        MemoryCallback(output={"sinks": ["wandbb"]})
    with pytest.raises(ConfigError, match=r"^output.sinks: no sink 'x'; there are wandb, mlflow, comet, prometheus, "):
        TrainingSession(None, (), {"sinks": "x"})


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "tbmem.sinks.wandb", raising=False)

    with pytest.raises(MissingDependencyError, match=r"^output.sinks: wandb cannot .*: pip install 'wandb>=[0-9.]+'$"):
        MemoryCallback(output={"sinks": "wandb"})


@pytest.mark.parametrize("given", [[3], 3, None])
def test_what_is_no_sink(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^sinks: takes names such as 'wandb'"):
        MemoryCallback(sinks=given)


def test_switched_off_nothing_is_loaded() -> None:
    MemoryCallback(enabled=False, output={"sinks": ["wandbb"]})


def test_a_package_adds_a_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("list", f"{__name__}:ListSink", metric_sinks.GROUP)
    monkeypatch.setattr(metric_sinks, "entry_points", lambda group: [entry] if group == entry.group else [])

    (sink,) = find_sinks(["list"], "list")

    assert isinstance(sink, ListSink)


# what they receive


def test_points_have_the_tags_of_tensorboard_and_devices_of_a_step_are_one_point(make_sample: MakeSample) -> None:
    # given
    sink, guard = ListSink(), Guard()
    sinks = MetricSinks([sink], guard)
    sinks.begin(Path("runs/a"), rank=3)
    samples = [make_sample(10, level, device=f"cuda:{number}") for number, level in enumerate((45.0, 46.0))]
    # when
    sinks.write([SampleRow(10, 1, None, None, sample) for sample in samples])
    sinks.write([{"type": "end"}])
    sinks.close()
    # then
    (point,) = sink.points
    tags = {f"rank3/{tag}": value for sample in samples for tag, value in scalar_values(sample, several=True)}
    assert point.values == tags
    assert (sink.calls, guard.problems) == (["open a-rank3", "close"], [])
    (summary,) = sink.summaries
    assert summary.values["rank3/memory/cuda:1/peak"] == 46.0


def test_findings_that_call_for_no_attention_are_left_out() -> None:
    # given
    sink = ListSink()
    sinks = MetricSinks(sink, Guard())
    sinks.begin(None, 0)
    # when
    informs = _finding(FindingKind.PERIODIC, Severity.INFO)
    sinks.write([_finding(FindingKind.SUSPECT), informs, _finding(FindingKind.LEAK), {"type": "end"}])
    sinks.close()
    # then
    assert [finding.kind for finding in sink.findings] == [FindingKind.LEAK]


def test_a_run_of_the_program_that_begins_late_receives_all(make_sample: MakeSample) -> None:
    # given
    sink = ListSink(has_run=False)
    sinks = MetricSinks(sink, Guard())
    sinks.begin(None, 0)
    rows = [SampleRow(step, 1, None, None, make_sample(step, 45.0)) for step in (1, 2, 3)]
    # when
    sinks.write(rows[:2])
    sinks.close()
    assert sink.calls == []
    sink.has_run = True
    sinks.begin(None, 0)
    sinks.write([*rows, {"type": "end"}])
    sinks.close()
    # then
    assert [point.step for point in sink.points] == [1, 2, 3]


def test_in_a_run(tmp_path: Path, train_step: Callable[[], None]) -> None:
    # when
    sink = ListSink()
    memory = _loop(sink, train_step, tmp_path)
    # then
    assert memory.summary is not None
    assert memory.summary.problems == ()
    assert sink.points[-1].step == 30
    assert sink.calls == ["open run", "close"]
    (summary,) = sink.summaries
    assert summary.values["memory/verdict"] == memory.summary.verdicts[0].kind.value
    assert list(summary.peaks) == list(memory.summary.peaks)


def test_adapters_take_sinks(tmp_path: Path, train_step: Callable[[], None]) -> None:
    # given
    sink = ListSink()
    session = TrainingSession("light", (), {"sinks": [sink]})
    # when
    session.begin(tmp_path)
    train_step()
    session.step()
    session.end()
    # then
    assert sink.calls[-1] == "close"
    assert sink.points


# never harms the run


def test_one_that_raises_is_told_once_and_the_others_receive(make_sample: MakeSample) -> None:
    # given
    broken, other, guard = BrokenSink(), ListSink(), Guard()
    sinks = MetricSinks([broken, other], guard)
    sinks.begin(None, 0)
    # when
    for step in (1, 2):
        sinks.write([SampleRow(step, 1, None, None, make_sample(step, 45.0))])
    sinks.write([_finding(FindingKind.LEAK), {"type": "end"}])
    sinks.close()
    # then
    assert guard.problems == ["sink broken is off: ConnectionError: no network"]
    assert len(other.points) == 2
    assert broken.findings == []


def test_one_that_hangs_holds_up_neither_training_nor_end(
    tmp_path: Path, train_step: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    monkeypatch.setattr(metric_sinks, "_JOIN_SECONDS", 0.1)
    gate, sink = threading.Event(), ListSink()
    monkeypatch.setattr(sink, "log", lambda points: gate.wait(60))
    # when
    memory = _loop(sink, train_step, tmp_path)
    threads = [thread for thread in threading.enumerate() if thread.name == "tbmem list"]
    gate.set()
    for thread in threads:
        thread.join(10)
    # then
    assert memory.summary is not None
    assert memory.summary.problems == ("sink list is off: TimeoutError: no answer in the last 0.1 seconds",)


def test_other_ranks_have_none_unless_they_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    sink = ListSink()
    # when
    with MemoryCallback("light", run={"logdir": str(tmp_path)}, sinks=sink) as memory:
        memory.step()
    with MemoryMonitor(folder=tmp_path, sinks=sink, rank=Rank(1, 2)) as monitor:
        monitor.step()
    # then
    assert sink.calls == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_sends_nothing(tmp_path: Path) -> None:
    # given
    sink = ListSink()
    with MemoryCallback("light", run={"logdir": str(tmp_path)}, sinks=sink) as memory:
        memory.step()
        # when
        child = os.fork()
        if child == 0:
            memory.step()
            memory.stop()
            os._exit(1 if "close" in sink.calls else 0)
        # then
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
