from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import PROJECT

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
    ]


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
    monkeypatch.setattr(gpu_check.run_checks, "__defaults__", ((("only", check),),))
    # when
    found = gpu_check.main([str(tmp_path / "out")])
    # then
    assert found == code
    assert capsys.readouterr().out.splitlines()[-1].startswith("only")


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
