"""The part inside of the program: counts steps, ends the program, writes the result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from tbmem.config import load_with_origins
from tbmem.rehearsal import session
from tbmem.rehearsal.environment import Order
from tbmem.rehearsal.session import Session
from tests.conftest import PROJECT


def _order(folder: Path, **values: bool | int) -> Order:
    results = folder / "results"
    results.mkdir()
    settings: dict[str, bool | int] = {"steps": 2, "is_recorded": False, **values}
    return Order(logdir=str(folder / "runs"), results=str(results), **settings)  # type: ignore[arg-type]


def _train(steps: int) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by an item where the process would have been ended, which raises instead."""
    ended: list[str] = []

    def end() -> None:
        ended.append("ended")
        raise SystemExit

    monkeypatch.setattr(session, "_end_process", end)
    return ended


@pytest.fixture(autouse=True)
def not_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.atexit, "register", lambda function: function)


def test_the_program_is_ended_after_its_steps(tmp_path: Path, ends: list[str]) -> None:
    # given a session that wants two steps
    watched = Session(_order(tmp_path))
    watched.start()

    # when a program would make five
    with pytest.raises(SystemExit):
        _train(5)

    # then it is ended after two, with its result written, once
    watched.finish()
    (path,) = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text())
    assert ends == ["ended"]
    assert (result["steps"], result["rank"], result["out_of_memory"]) == (2, 0, False)
    assert Path(result["folder"]).is_dir()


def test_a_program_that_ends_by_itself_has_a_result(tmp_path: Path, ends: list[str]) -> None:
    watched = Session(_order(tmp_path, steps=0))
    watched.start()
    _train(3)

    watched.finish()

    (path,) = (tmp_path / "results").iterdir()
    assert json.loads(path.read_text())["steps"] == 3
    assert not ends


@pytest.mark.parametrize("is_recorded", [True, False])
def test_the_configuration_is_valid(tmp_path: Path, is_recorded: bool) -> None:
    overrides = session._overrides(_order(tmp_path, steps=4, is_recorded=is_recorded))

    config = load_with_origins(None, overrides).config

    assert (config.profiling.active, config.profiling.with_stack) == (4, False)
    assert (config.profiling.enabled, config.snapshot.enabled, config.oom.enabled) == (is_recorded,) * 3


def test_a_session_starts_when_cuda_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given CUDA that can be initialised
    initialised: list[str] = []
    started: list[Order] = []
    initialise: Callable[[], None] = lambda: initialised.append("cuda")  # noqa: E731
    monkeypatch.setattr(torch.cuda, "_lazy_init", initialise)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(session, "_start", started.append)
    order = _order(tmp_path)

    # when the program does so twice
    session.attach(order)
    torch.cuda._lazy_init()
    torch.cuda._lazy_init()

    # then the session starts once, and the function is torch's own again
    assert initialised == ["cuda", "cuda"]
    assert started == [order]
    assert torch.cuda._lazy_init is initialise


_ENDS = """
import subprocess, sys
from tbmem.rehearsal.session import _end_process
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid)
try:
    _end_process()
except BaseException:
    print("caught")
finally:
    print("finally")
"""


def test_the_process_ends_at_once_with_those_it_started() -> None:
    done = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    (child,) = map(int, done.stdout.split())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _rehearse(folder: Path, script: str, *options: str, argument: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "tbmem", "rehearse", *options, "--json", "--", "train.py", argument]
    return subprocess.run(
        [word for word in command if word],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


_CHECKPOINTED = """
import sys, torch
from torch.utils.checkpoint import checkpoint
batch = int(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
while True:
    output = checkpoint(model, torch.randn(batch, 1024, device="cuda"), use_reentrant=False)
    output.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="no CUDA build of torch here")
@pytest.mark.parametrize(("batch", "code"), [(1024, 0), (1 << 22, 1)], ids=["fits", "does not"])
def test_a_script_on_a_simulated_gpu(batch: int, code: int, tmp_path: Path) -> None:
    # given a training script without an end
    # when it is rehearsed
    done = _rehearse(tmp_path, _CHECKPOINTED, "--gpu", "t4", argument=str(batch))

    # then its peak is what its tensors need, and what is missing is known
    assert done.returncode == code, done.stderr
    view = json.loads(done.stdout)
    (process,) = view["processes"]
    assert view["fits"] == (code == 0)
    if view["fits"]:
        states = 4 * 4 * (1024 * 1024 + 1024) * 4  # parameters, gradients, two moments
        assert view["peak_allocated"] > states
        assert process["steps"] == 3
        assert view["by_category"]["OPTIMIZER_STATE"] > states // 2
    else:
        assert view["needed"] > 4 * (batch * 1024 * 4)
        assert "train.py:" in view["out_of_memory_report"]


_RESETS_ITS_PEAKS = """
import torch

model = torch.nn.Linear(16, 16, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.reset_peak_memory_stats()
torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
for _ in range(2):
    model(torch.randn(16, 16, device="cuda")).sum().backward()
    optimizer.step()
print(torch.cuda.max_memory_allocated() >> 29)
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="no CUDA build of torch here")
def test_a_script_reads_its_own_peak_and_what_it_resets_is_not_lost(tmp_path: Path) -> None:
    # given a script that resets the counters after 1 GiB, needs half as much, and prints its own peak after two steps
    # when it is rehearsed
    done = _rehearse(tmp_path, _RESETS_ITS_PEAKS, "--gpu", "t4")

    # then it prints what it would without tbmem, and the result has the peak before the reset
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "1"
    view = json.loads(done.stdout)
    assert view["peak_allocated"] >= 1 << 30
    assert view["processes"][0]["devices"][0]["step"] == 1


_TWO_PROCESSES = """
import subprocess, sys, torch
bytes = int(0.6 * torch.cuda.get_device_properties(0).total_memory)
kept = torch.empty(bytes, dtype=torch.uint8, device="cuda")
sys.exit(0 if sys.argv[1:] else subprocess.call([sys.executable, __file__, "second"]))
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="no CUDA build of torch here")
def test_two_processes_share_one_gpu(tmp_path: Path) -> None:
    # given a program of two processes, of which each takes 60 % of the GPU
    # when it is rehearsed
    done = _rehearse(tmp_path, _TWO_PROCESSES, "--gpu", "t4")

    # then the second one gets torch's error, which names what the first one has
    assert done.returncode == 1, done.stderr
    assert re.search(r"Process \d+ has 9.01 GiB memory in use. .* this process has 250.00 MiB memory", done.stderr)
    devices = [device for process in json.loads(done.stdout)["processes"] for device in process["devices"]]
    assert sorted(device["others"] >> 20 for device in devices) == [0, 9222]


_SPAWNED = """
import os, torch
from torch.nn.parallel import DistributedDataParallel

def train(rank, ranks):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29511"
    torch.distributed.init_process_group("nccl", rank=rank, world_size=ranks)
    model = DistributedDataParallel(torch.nn.Linear(1024, 1024).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters())
    while True:
        model(torch.randn(64, 1024)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (2,), nprocs=2)
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.version.cuda is None, reason="no CUDA build of torch here")
def test_each_spawned_rank_has_a_result(tmp_path: Path) -> None:
    done = _rehearse(tmp_path, _SPAWNED, "--gpu", "t4", "--gpus", "2")

    assert done.returncode == 0, done.stderr
    processes = json.loads(done.stdout)["processes"]
    assert [(each["rank"], each["steps"], len(each["devices"])) for each in processes] == [(0, 3, 1), (1, 3, 1)]
    assert [each["devices"][0]["device"] for each in processes] == ["cuda:0", "cuda:1"]
