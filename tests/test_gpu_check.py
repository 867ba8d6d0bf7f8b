from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tbmem.demo import Fault
from tbmem.demo import training as demo_training
from tests.conftest import PROJECT
from tests.cuda_stand_in import CudaStandIn, cuda_stand_in

SCRIPT = PROJECT / "benchmarks" / "gpu_check.py"


@pytest.fixture(scope="module")
def gpu_check() -> ModuleType:
    """The script as a module: it is in no package."""
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so_in_one_line_and_exits_2(tmp_path: Path) -> None:
    # given
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    folder = tmp_path / "artefacts"
    # when
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    # then
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert "no GPU" in done.stdout
    assert done.stderr == ""
    assert not folder.exists()


def _passes(bench: Any) -> str:
    return "12 µs"


def _raises(bench: Any) -> str:
    raise KeyError("two\nlines")


def test_a_check_that_fails_is_a_row_and_the_others_go_on(
    gpu_check: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    def does_not_hold(bench: Any) -> str:
        gpu_check.expect(1 == 2, "one is not two")
        return ""

    checks = [("first", _passes), ("second", _raises), ("third", does_not_hold), ("fourth", _passes)]
    # when
    rows = gpu_check.run_checks(None, checks)
    lines = gpu_check.table(rows).splitlines()
    # then
    assert [row.passed for row in rows] == [True, False, False, True]
    assert [line.split(maxsplit=2) for line in lines] == [
        ["check", "result", "figure"],
        ["first", "ok", "12 µs"],
        ["second", "FAILED", r"KeyError: 'two\nlines'"],
        ["third", "FAILED", "one is not two"],
        ["fourth", "ok", "12 µs"],
        ["2", "of", "4 checks hold; left out, since they need a real GPU: 0"],
    ]


def test_on_a_simulated_gpu_a_check_that_needs_a_clock_is_left_out_and_counted(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    monkeypatch.setattr(gpu_check, "is_simulated", lambda: True)
    name = next(iter(gpu_check.NEED_A_CLOCK))
    # when
    rows = gpu_check.run_checks(None, [("first", _passes), (name, _raises)])
    # then
    assert [row.passed for row in rows] == [True, None]
    assert gpu_check.table(rows).endswith("1 of 1 checks hold; left out, since they need a real GPU: 1")


@pytest.mark.parametrize(("check", "code"), [(_passes, 0), (_raises, 1)])
def test_the_exit_code_tells_whether_all_checks_held(
    gpu_check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    check: Any,
    code: int,
) -> None:
    # given a machine with a GPU, and one check
    monkeypatch.setattr(gpu_check.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu_check, "Bench", lambda folder, scratch: None)
    monkeypatch.setattr(gpu_check, "CHECKS", (("only", check),))
    # when
    found = gpu_check.main([str(tmp_path / "out")])
    # then
    assert found == code
    assert capsys.readouterr().out.splitlines()[1].startswith("only")


def test_every_check_is_named_once(gpu_check: ModuleType) -> None:
    # given
    names = [name for name, _ in gpu_check.CHECKS]
    functions = [check for _, check in gpu_check.CHECKS]
    # then
    assert len(set(names)) == len(set(functions)) == len(gpu_check.CHECKS)
    defined = {name for name in vars(gpu_check) if name.startswith("check_")}
    assert {check.__name__ for check in functions} == defined


def test_every_name_of_torch_that_the_checks_use_exists(gpu_check: ModuleType) -> None:
    # given a build without CUDA, in which these cannot be called but are there all the same
    torch = gpu_check.torch
    # then
    for name in (
        "CUDAGraph",
        "Stream",
        "_sleep",
        "current_stream",
        "empty_cache",
        "get_device_capability",
        "get_device_properties",
        "get_sync_debug_mode",
        "graph",
        "max_memory_allocated",
        "max_memory_reserved",
        "mem_get_info",
        "memory_allocated",
        "memory_reserved",
        "reset_peak_memory_stats",
        "set_sync_debug_mode",
        "stream",
        "synchronize",
    ):
        assert callable(getattr(torch.cuda, name)), name
    for name in ("_record_memory_history", "_snapshot", "memory_snapshot", "get_allocator_backend"):
        assert callable(getattr(torch.cuda.memory, name)), name
    declared = Path(torch.__file__).with_name("_C") / "__init__.pyi"
    assert "def _cuda_isHistoryEnabled() -> _bool" in declared.read_text()


def _trace(*events: tuple[float, int, int]) -> dict[str, Any]:
    rows = [
        {"name": "[memory]", "ts": ts, "args": {"Addr": address, "Bytes": size, "Device Type": 1, "Device Id": 0}}
        for ts, address, size in events
    ]
    return {"baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": [{"name": "other"}, *rows]}


def test_lifetimes_are_unix_nanoseconds(gpu_check: ModuleType) -> None:
    # given an address that is used twice, and a free of something older than the trace
    recorded = gpu_check.Recorded.__new__(gpu_check.Recorded)
    events = _trace((2.5, 64, -512), (1.5, 64, 512), (3.0, 64, 256), (0.5, 99, -8))
    recorded.__dict__["events"] = events
    # when
    spans = gpu_check.lifetimes(recorded, memory_type=1)
    # then
    base = events["baseTimeNanoseconds"]
    assert spans[64] == [(base + 1500, base + 2500, 512), (base + 3000, float("inf"), 256)]
    assert spans[99] == []
    assert gpu_check.lifetimes(recorded, memory_type=6) == {}


NEEDS_A_GPU = {
    "CUDA graph capture": "graphs are captured by the driver",
    "a GPU that is not used stays asleep": "a process of its own, see below",
    "estimates beside real peaks": "processes of their own, see below",
    "expandable segments": "a process of its own, see below",
}
"""The checks that no stand-in can serve, and why."""
_ALL_BUT_THESE = [
    pytest.param(f"check_{function}", id=function)
    for function in (
        "counters",
        "step_peaks",
        "no_synchronisation",
        "step_does_not_wait",
        "cost",
        "trace",
        "address_book",
        "window_snapshot",
        "history_is_off",
        "users_history_stays",
        "overflow",
        "snapshot_by_hand",
        "record",
        "out_of_memory",
        "demo_none",
        "demo_leak",
        "demo_spike",
        "near_capacity",
        "births",
        "births_under_a_curriculum",
        "profiler_overhead",
        "offline_verdicts",
        "artefacts",
    )
]


class SmallDemo:
    """A ``DemoTraining`` of a few operators."""

    def __init__(self, device: torch.device, steps: int, fault: Fault | None) -> None:
        self.model = torch.nn.Linear(8, 1024, device=device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), momentum=0.9)
        self.history: list[torch.Tensor] = []
        self._fault = fault
        self._outlier_step = round(0.75 * steps)

    def step(self, number: int) -> float:
        outlier = self._fault is Fault.SPIKE and number == self._outlier_step
        scores = self.model(torch.ones(1024 if outlier else 128, 8))
        loss = scores.square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self._fault is Fault.LEAK:
            self.history.append(scores)
        return loss.item()


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaStandIn]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # operators so small only wait for other threads
    with cuda_stand_in(monkeypatch) as allocator:
        yield allocator
    torch.set_num_threads(threads)


@pytest.fixture
def bench(gpu_check: ModuleType, allocator: CudaStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A bench whose tensors are the CPU's, as are traces and address books; samples and snapshots say ``cuda:0``."""
    for place in (gpu_check, demo_training):
        monkeypatch.setattr(place, "DemoTraining", SmallDemo)
    monkeypatch.setattr(gpu_check, "_STEP_LIMIT_US", float("inf"))
    # in the process of many tests there are millions of objects to look through
    monkeypatch.setenv("TBMEM_EVIDENCE_MAX_SECONDS", "60")
    monkeypatch.setattr(gpu_check.Bench, "index", -1)
    monkeypatch.setattr(gpu_check.Bench, "name", "cuda:0")
    (tmp_path / "artefacts").mkdir()
    bench = gpu_check.Bench(tmp_path / "artefacts", tmp_path)
    bench.device, bench.memory_type = torch.device("cpu"), 0
    return bench


@pytest.mark.parametrize("name", _ALL_BUT_THESE)
def test_a_check_holds_with_a_stand_in_for_the_allocator(gpu_check: ModuleType, bench: Any, name: str) -> None:
    # given CUDA's counters and history of the CPU's tensors, when the check runs, then it has a figure to show
    assert getattr(gpu_check, name)(bench)


def test_every_check_runs_here_or_is_said_to_need_a_gpu(gpu_check: ModuleType) -> None:
    # given
    run = {param.values[0] for param in _ALL_BUT_THESE}
    # then
    assert {check.__name__ for name, check in gpu_check.CHECKS if name not in NEEDS_A_GPU} == run
    assert {*NEEDS_A_GPU, *gpu_check.NEED_A_CLOCK} < {name for name, _ in gpu_check.CHECKS}
    assert len(gpu_check.NEED_A_CLOCK) <= 3


def test_the_part_under_expandable_segments_holds(gpu_check: ModuleType, bench: Any, allocator: CudaStandIn) -> None:
    # given what the setting does to the segments
    allocator.expandable = True
    # then
    assert gpu_check.under_expandable_segments(bench)


def test_a_stand_in_that_waits_or_loses_a_counter_is_noticed(
    gpu_check: ModuleType, bench: Any, allocator: CudaStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a step() that waits for the device
    read = allocator.memory_stats_as_nested_dict
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: [allocator.synchronize(), read()][1])
    # then
    with pytest.raises(gpu_check.CheckFailed):
        gpu_check.check_step_does_not_wait(bench)


def test_training_on_the_cpu_runs_in_the_process_that_must_not_wake_a_gpu(
    gpu_check: ModuleType, tmp_path: Path
) -> None:
    # given the script of that check
    command = [sys.executable, "-c", gpu_check._ON_THE_CPU, "auto", str(tmp_path)]
    # when
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    # then
    assert done.returncode == 0, done.stderr


def test_estimates_beside_real_peaks_say_that_there_is_no_gpu() -> None:
    # given
    script = SCRIPT.with_name("estimate_rehearsed.py")
    # when
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    # then
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1), done.stderr
