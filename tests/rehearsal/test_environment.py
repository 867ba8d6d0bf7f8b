"""The environment of rehearsed processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tbmem.model.gpus import gpu_named
from tbmem.rehearsal import environment
from tbmem.rehearsal.environment import Order, rehearsal_environment, world_environment

STARTUP = str(Path(environment.__file__).with_name("startup"))


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    monkeypatch.setattr(environment, "built_library", lambda: tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return rehearsal_environment(gpu_named("a100-40gb"), 2, tmp_path)


def test_the_environment_describes_the_gpus(variables: dict[str, str], tmp_path: Path) -> None:
    # given a GPU of the table, when its environment is made, then it says all that the device asks for
    gpu = gpu_named("a100-40gb")
    found = {name: variables[f"TBMEM_GPU_{name}"] for name in ("CAPABILITY", "COUNT", "BYTES", "FOLDER")}
    assert found == {"CAPABILITY": "80", "COUNT": "2", "BYTES": str(gpu.total), "FOLDER": str(tmp_path)}
    assert variables["PYTHONPATH"].split(os.pathsep)[0] == STARTUP
    assert variables["PYTHONPATH"].endswith(f"{os.pathsep}mine")
    assert "CUDA_VISIBLE_DEVICES" not in variables


def test_this_process_stays_as_it_is(variables: dict[str, str]) -> None:
    # given an environment for others, when it is made, then nothing of this process has changed
    assert environment.LIBRARY not in os.environ
    assert not environment.is_simulated()
    assert os.environ["PYTHONPATH"] == "mine"


def test_an_order_travels_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # given an order, when a process reads its variable, then it is the same
    order = Order(3, "/runs", "/results", 8, 2)
    assert Order.of_this_process() is None
    for name, value in order.variable().items():
        monkeypatch.setenv(name, value)
    assert Order.of_this_process() == order


def test_a_rank_knows_its_place() -> None:
    # given rank 13 of 16, when its variables are made, then it is the fifth GPU of the second node
    found = world_environment(13, 16)
    assert [found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK")] == ["13", "16", "5", "1"]


def test_a_hidden_sitecustomize_still_runs(built: Path, tmp_path: Path) -> None:
    # given a module of the user's that Python would import at its start, and the device
    (tmp_path / "sitecustomize.py").write_text("print('hidden one')\n", encoding="utf-8")
    library = built / environment.MAIN
    variables = {**os.environ, "PYTHONPATH": f"{STARTUP}{os.pathsep}{tmp_path}", environment.LIBRARY: str(library)}
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0), ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    # when Python starts, then both have been loaded, and the driver is found by its name
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["hidden one", "0 0"]
