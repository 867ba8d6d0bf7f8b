"""Memory runs out: a stand-in for CUDA's observer and allocator, real exceptions of the CPU."""

from __future__ import annotations

import logging
import pickle
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem import MemoryCallback, MemoryMonitor
from tbmem.config import OomConfig, SnapshotConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import read_monitor_log
from tbmem.model.oom import Limit, RunContext
from tbmem.model.sample import MemorySample
from tbmem.runtime.oom import cuda_observer as oom_observer
from tbmem.runtime.oom import flight_recorder
from tbmem.runtime.oom.flight_recorder import FlightRecorder
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.sources.counters.memory_limits import HostState
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tbmem.units import GIB, MIB
from tests.model.test_finding import make_finding
from tests.sources.torch_state.test_out_of_memory import CPU_ERROR, CUDA_ERROR

Observer = Callable[[int, int, int, int], None]


class _Allocator:
    """Stands in for ``torch.cuda.memory``: a segment with a gap in it."""

    def __init__(self) -> None:
        self.taken = 0

    def _snapshot(self) -> dict[str, Any]:
        self.taken += 1
        blocks = [
            {"size": 70 * GIB, "requested_size": 70 * GIB, "state": "active_allocated", "frames": []},
            {"size": 8 * GIB, "requested_size": 0, "state": "inactive", "frames": []},
        ]
        segment = {"device": 0, "address": 4096, "total_size": 78 * GIB, "stream": 0, "blocks": blocks}
        return {"segments": [segment], "device_traces": [[]]}


@pytest.fixture
def allocator() -> _Allocator:
    return _Allocator()


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch, allocator: _Allocator) -> list[Observer]:
    """What was attached as CUDA's observer."""
    attached: list[Observer] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attached.append, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: call())
    monkeypatch.setattr(oom_observer._Observer, "attached_in", None)
    history = MemoryHistory(allocator, 100)
    monkeypatch.setattr(MemoryHistory, "of_this_process", classmethod(lambda cls, entries: history))
    return attached


class _Run:
    """A run that a recorder watches."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.step = 5
        self.told: list[Finding] = []
        self.logged: list[Any] = []
        self.wrote: list[Path] = []
        self.guard = Guard()
        self.host = HostState((Limit(name="cgroup", total=GIB, free=GIB),), 64 * GIB, 32 * GIB, 512 * MIB)
        self.report = self.told.append
        self.log = self.logged.append
        self.sample = MemorySample(step=4, time=0.0, device="cuda:0", device_total=80 * GIB, reserved=78 * GIB)
        self.folder = RunFolder(folder, guard=self.guard)
        self.recorder = FlightRecorder(
            self.folder,
            OomConfig(**config),
            SnapshotConfig(),
            self.guard,
            wrote=self.wrote.append,
            host=lambda: self.host,
        )

    def __enter__(self) -> _Run:
        self.recorder.open(self)
        return self

    def situation(self) -> RunContext:
        return RunContext(self.step, self.told, {"cuda:0": self.sample}, rank=2)

    def flush(self, ends: bool) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.recorder.close()
        assert self.folder.end() == []


def test_the_allocators_observer_writes_before_unwinding(
    observer: list[Observer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # given a run on a device whose allocator gives up
    with _Run(tmp_path) as run:
        (forward,) = observer
        forward(0, 2 * GIB, 80 * GIB, GIB)

        run.folder.end()

        # then the allocator's state is written, and nobody has been told of an end yet
        (snapshot,) = tmp_path.glob("*.oom.snapshot.pickle")
        assert run.wrote == [snapshot]
        assert pickle.loads(snapshot.read_bytes())["segments"][0]["total_size"] == 78 * GIB
        assert run.told == []

        # when the exception arrives at the end of the run
        with caplog.at_level(logging.INFO, "tbmem"):
            run.recorder.end(CUDA_ERROR)

    # then there is one finding with the request, what was free, why, and the files
    (finding,) = run.told
    assert (finding.kind, finding.severity, finding.device) == (FindingKind.OOM, Severity.CRITICAL, "cuda:0")
    assert (finding.first_step, finding.rank) == (5, 2)
    assert "2.00 GiB were requested at test_flight_recorder.py:" in finding.message
    assert "1.00 GiB were free" in finding.message
    assert [reason["cause"] for reason in finding.evidence["reasons"]] == ["fragmentation"]
    assert finding.evidence["error"] == "OutOfMemoryError"
    assert "expandable_segments" in finding.advice
    (report,) = tmp_path.glob("*.oom.txt")
    assert finding.evidence["files"] == [snapshot.name, report.name]
    # and the report says the same, on the console as well
    text = report.read_text()
    for words in ("requested: 2.00 GiB on GPU 0", "fragmented 8.00 GiB", "why:       fragmentation", "error: CUDA"):
        assert words in text
    assert "largest holders" in caplog.text


def test_a_request_that_failed_and_was_caught_is_no_finding(
    observer: list[Observer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _Run(tmp_path) as run, caplog.at_level(logging.INFO, "tbmem"):
        observer[0](0, 2 * GIB, 80 * GIB, GIB)
        run.recorder.settle()
        assert run.logged == []
        # when the next step runs
        run.step += 1
        run.recorder.settle()
        run.recorder.end(None)

    assert run.told == []
    assert [record["type"] for record in run.logged] == ["caught"]
    assert "a request of 2.00 GiB on cuda:0 failed and training continued" in caplog.text
    assert not list(tmp_path.glob("*.oom.txt"))


def test_a_run_that_ends_in_the_step_in_which_a_request_failed_ran_out_of_memory(
    observer: list[Observer], tmp_path: Path
) -> None:
    # given a trainer that tells its callbacks nothing about an exception
    with _Run(tmp_path) as run:
        observer[0](0, 2 * GIB, 80 * GIB, GIB)
        run.recorder.end(None)

    assert [finding.kind for finding in run.told] == [FindingKind.OOM]


def test_another_exception_is_not_taken_for_it(observer: list[Observer], tmp_path: Path) -> None:
    with _Run(tmp_path) as run:
        observer[0](0, 2 * GIB, 80 * GIB, GIB)
        run.recorder.end(ZeroDivisionError())

    assert run.told == []


def test_many_failed_requests_cost_little(observer: list[Observer], tmp_path: Path, allocator: _Allocator) -> None:
    # given a loop that tries a hundred batches that are too large
    with _Run(tmp_path) as run:
        for _ in range(100):
            observer[0](0, 2 * GIB, 80 * GIB, GIB)
        run.recorder.end(CUDA_ERROR)

    # then only the first few were looked into, and the last one is told all the same, with its holders
    assert allocator.taken == flight_recorder._REPORTS
    (finding,) = run.told
    assert finding.evidence["requested_bytes"] == 2 * GIB
    assert "holders" in finding.evidence


def test_an_error_in_the_recorder_never_reaches_the_allocator(
    observer: list[Observer], tmp_path: Path, allocator: _Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an allocator whose state cannot be had
    def fail() -> None:
        raise ValueError("no")

    monkeypatch.setattr(allocator, "_snapshot", fail)
    with _Run(tmp_path) as run:
        observer[0](0, 2 * GIB, 80 * GIB, GIB)
        run.recorder.end(CUDA_ERROR)

    # then the part is off, said once, and the end is told all the same
    assert len(run.guard.problems) == 1
    assert [finding.kind for finding in run.told] == [FindingKind.OOM]


def test_the_observer_serves_the_run_that_is_open_and_is_attached_once(
    observer: list[Observer], tmp_path: Path
) -> None:
    with _Run(tmp_path / "a") as one:
        with _Run(tmp_path / "b") as other:
            observer[0](0, 2 * GIB, 80 * GIB, GIB)
        observer[0](0, 3 * GIB, 80 * GIB, GIB)
        one.recorder.end(CUDA_ERROR)
        other.recorder.end(CUDA_ERROR)
    observer[0](0, 4 * GIB, 80 * GIB, GIB)

    assert len(observer) == 1
    requested = [run.told[0].evidence["requested_bytes"] for run in (one, other)]
    assert requested == [3 * GIB, 2 * GIB]


def test_a_process_that_may_use_a_part_only(observer: list[Observer], tmp_path: Path) -> None:
    # given set_per_process_memory_fraction: 79 of 80 GiB allowed, 78 reserved
    with _Run(tmp_path) as run:
        observer[0](0, 20 * GIB, 79 * GIB, 2 * GIB)
        run.recorder.end(CUDA_ERROR)

    limit = run.told[0].evidence["limits"][0]
    assert (limit["name"], limit["free"]) == ("this process's share of the device", GIB)


def test_switched_off_nothing_is_attached_or_told(observer: list[Observer], tmp_path: Path) -> None:
    with _Run(tmp_path, enabled=False, sigterm=False) as run:
        run.recorder.end(CUDA_ERROR)
        run.recorder.look_at_host(run.host.limits[0])

    assert (observer, run.told) == ([], [])


def test_a_container_that_fills_is_one_warning_with_its_holders(tmp_path: Path) -> None:
    # given a container of which 40 MiB are left, of 1 GiB
    with _Run(tmp_path) as run:
        run.recorder.look_at_host(run.host.limits[0])
        assert run.told == []
        run.host = run.host._replace(limits=(Limit(name="cgroup", total=GIB, free=40 * MIB),))
        # when it is looked at again and again
        for _ in range(5):
            run.recorder.look_at_host(run.host.limits[0])

    # then there is one critical finding, and a file
    (finding,) = run.told
    assert (finding.kind, finding.severity, finding.device) == (FindingKind.NEAR_CAPACITY, Severity.CRITICAL, "cpu")
    assert "the cgroup is nearly used up: 40.00 MiB of 1.00 GiB left" in finding.message
    (report,) = tmp_path.glob("*.near-limit.txt")
    assert finding.evidence["files"] == [report.name]
    assert "container" in finding.advice


def test_a_container_that_fills_quickly_is_told_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given 240 MiB left of 1 GiB, 100 MiB less than a second ago
    now = count(10.0)
    monkeypatch.setattr("tbmem.runtime.oom.flight_recorder.time.monotonic", lambda: next(now))
    with _Run(tmp_path) as run:
        for free in (340, 240):
            run.host = run.host._replace(limits=(Limit(name="cgroup", total=GIB, free=free * MIB),))
            run.recorder.look_at_host(run.host.limits[0])

    assert len(run.told) == 1


@pytest.mark.parametrize("error", [RuntimeError(str(CPU_ERROR)), MemoryError()], ids=["torch", "python"])
def test_the_callback_tells_why_and_lets_the_exception_pass(tmp_path: Path, error: BaseException) -> None:
    # given a training in which memory runs out in step 3, with something large alive
    callback = MemoryCallback(run={"logdir": str(tmp_path), "name": "run"}, profiling={"enabled": False})

    def train() -> None:
        large = torch.ones(4 * MIB)
        with callback as memory:
            memory.step()
            memory.step()
            assert large.sum() > 0
            raise error

    # when it runs, then the very exception comes out
    with pytest.raises(type(error)) as caught:
        train()
    assert caught.value is error
    # and the finding stands in the live log, with the holder and the line
    log = read_monitor_log(tmp_path / "run/plugins/tbmem/monitor.jsonl")
    (finding,) = [each for each in log.findings if each.kind is FindingKind.OOM]
    assert (finding.device, finding.first_step) == ("cpu", 3)
    assert finding.evidence["line"].endswith(" in train()")
    large = "tensor 'large' in test_the_callback_tells_why_and_lets_the_exception_pass.train()"
    holders = {holder["name"]: holder for holder in finding.evidence["holders"]}
    assert holders[large]["bytes"] == 16 * MIB
    assert "large = torch.ones(4 * MIB)" in holders[large]["lines"][0]
    (report,) = (tmp_path / "run").glob("*.oom.txt")
    assert report.name in finding.evidence["files"]


def test_a_leak_that_was_flagged_is_why(tmp_path: Path) -> None:
    with _Run(tmp_path) as run:
        leak = Finding(
            kind=FindingKind.LEAK,
            severity=Severity.CRITICAL,
            device="cpu",
            first_step=1,
            last_step=4,
            message="",
            evidence={
                "channel": "allocated",
                "growth_bytes": 1 << 50,
                "bytes_per_step": 1 << 48,
                "holder": "list 'kept'",
            },
            advice="clear it",
        )
        run.told.append(leak)
        run.recorder.end(CPU_ERROR)

    reason = run.told[-1].evidence["reasons"][0]
    assert (reason["cause"], run.told[-1].advice) == ("leak", "clear it")
    assert "a leak was flagged at step 4" in reason["text"]


def test_where_no_memory_is_left_for_a_report_it_says_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a leak near the limit of the address space, of which a report was written
    with _Run(tmp_path) as run:
        limit = Limit(name="RLIMIT_AS", total=16 * GIB, free=20 * MIB)
        run.host = run.host._replace(limits=(limit,))
        evidence = {"channel": "allocated", "growth_bytes": 12 * GIB, "holder": "list 'kept'"}
        run.told.append(make_finding(kind=FindingKind.LEAK, device="cpu", evidence=evidence, advice="clear it"))
        run.recorder.look_at_host(limit)

        # when looking at the process fails for want of memory
        def fail(*_: object) -> None:
            raise MemoryError

        monkeypatch.setattr("tbmem.runtime.oom.report.error_report", fail)
        run.recorder.end(CPU_ERROR)
    # then
    evidence = run.told[-1].evidence
    assert evidence["reasons"][0]["cause"] == "leak"
    assert run.told[-1].advice == "clear it"
    assert evidence["limits"][0]["name"] == "RLIMIT_AS"
    (near,) = tmp_path.glob("*near-limit*")
    assert evidence["notes"] == [f"no memory was left to look at what holds it; {near.name} was written shortly before"]


def test_addresses_that_are_kept_for_the_report_are_not_said_to_be_free(tmp_path: Path) -> None:
    # given
    with _Run(tmp_path) as run:
        run.recorder.look_at_host(Limit(name="RLIMIT_AS", total=GIB, free=900 * MIB))
        assert run.recorder._reserve is not None
        # when
        run.recorder.end(CPU_ERROR)
        # then they were given back once
        assert run.recorder._reserve is None
        run.recorder.look_at_host(Limit(name="RLIMIT_AS", total=GIB, free=900 * MIB))
        assert run.recorder._reserve is None
    # and others are not kept at all
    with _Run(tmp_path / "other") as run:
        run.recorder.look_at_host(Limit(name="cgroup", total=GIB, free=900 * MIB))
        assert run.recorder._reserve is None


def test_the_monitor_alone_tells_too(tmp_path: Path) -> None:
    monitor = MemoryMonitor(folder=tmp_path / "run", console=False)

    def train() -> None:
        with monitor:
            monitor.step()
            raise MemoryError

    with pytest.raises(MemoryError):
        train()
    assert [finding.kind for finding in monitor.findings] == [FindingKind.OOM]
    assert len(list((tmp_path / "run").glob("*.oom.txt"))) == 1


def test_a_folder_that_cannot_be_written_leaves_the_finding(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # given a folder in whose place a file lies
    run = _Run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("")
    # when
    run.recorder.open(run)
    run.recorder.end(CPU_ERROR)
    run.recorder.close()
    # then the end says what was not written
    assert run.folder.end() == run.told[0].evidence["files"]
    assert run.told[0].kind is FindingKind.OOM
    assert "not written: the disk has not taken these" in caplog.text
