"""Children that are forked beside a recording end like any others, and leave the run to their parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tbmem.sources.torch_state import forked_children

PROGRAM = """
import atexit, json, multiprocessing, os, signal, sys, threading
import torch
import tbmem
from tbmem import MemoryCallback

codes, answers = {}, {}


def on():
    hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)(True)
    return torch._C._autograd._profiler_enabled(), sys.getprofile() is not None, hooks is not None


def falls_off():
    sys.stdout.write("buffered ")


def fails():
    raise ValueError


CASES = {"exit": lambda: sys.exit(7), "end": falls_off, "exception": fails, "hard": lambda: os._exit(5)}


def fork(name, case):
    # the rest of the program is left out in the child: it ends as a script does
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that hangs ends so
        memory.step()
        atexit.register(lambda: print("exit function", end=" "))
        if case == "inside":
            os._exit(any(on()))
        CASES[case]()
        raise SystemExit
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
profiling = {"wait": 0, "warmup": 1, "active": 2, "repeat": 1}
with MemoryCallback(run={"logdir": sys.argv[1], "name": "run"}, profiling=profiling) as memory:
    memory.watch(model, optimizer)
    for step in range(1, 6):
        if step in (1, 2, 3):
            fork(f"step {step}", "inside")
        if step == 2:
            thread = threading.Thread(target=fork, args=("thread", "inside"))
            thread.start()
            thread.join()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        memory.step()
    for case in CASES:
        fork(case, case)
fork("after the run", "exit")
with tbmem.record(logdir=sys.argv[1]) as recording:
    fork("record", "exit")
loader = torch.utils.data.DataLoader(list(range(8)), num_workers=2, multiprocessing_context="fork")
answers["loader"] = [int(sum(batch)) for batch in loader]
worker = multiprocessing.get_context("fork").Process(target=on)
worker.start()
worker.join(30)
answers["process"] = worker.exitcode
answers["windows"] = len(memory.profiler.ledger.traces)
answers["log"] = str(memory.summary.monitor_log)
answers["recorded"] = [file.name for file in recording.files]
sys.stdout.flush()
print()
print(json.dumps([codes, answers]))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, Any], str, list[Path]]:
    """Exit codes of the children by name, what the parent says, its standard output, the files that are there."""
    folder = tmp_path_factory.mktemp("runs")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    *printed, last = done.stdout.splitlines()
    codes, answers = json.loads(last)
    return codes, answers, "\n".join(printed), [path for path in folder.rglob("*") if path.is_file()]


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what ends them is glibc's")


def test_children_end_with_their_own_status(ended: Any) -> None:
    codes = ended[0]
    assert {name: codes[name] for name in ("exit", "end", "exception", "hard")} == {
        "exit": 7,
        "end": 0,
        "exception": 1,
        "hard": 5,
    }
    assert (codes["after the run"], codes["record"]) == (7, 7)


def test_children_of_a_window_do_not_go_on_recording(ended: Any) -> None:
    codes = ended[0]
    assert {codes[name] for name in ("step 1", "step 2", "step 3", "thread")} == {0}


def test_their_exit_functions_run_and_their_output_is_flushed(ended: Any) -> None:
    codes, _, printed, _ = ended
    assert set(codes) >= {"exit", "end", "exception", "after the run", "record"}
    assert printed.count("exit function") == 5
    assert printed.count("buffered") == 1


def test_workers_run_after_a_window(ended: Any) -> None:
    answers = ended[1]
    assert answers["loader"] == list(range(8))
    assert answers["process"] == 0


def test_the_run_is_the_parents_alone(ended: Any) -> None:
    _, answers, _, files = ended
    # the windows are whole, the log has one header and one end, and no file is another process's
    assert answers["windows"] == 1
    lines = [json.loads(line)["type"] for line in Path(answers["log"]).read_text().splitlines()]
    assert (lines.count("header"), lines.count("end")) == (1, 1)
    assert len(answers["recorded"]) == 2
    assert not [path for path in files if "partial" in path.name]
    assert len([path for path in files if path.name.endswith(".pt.trace.json.gz")]) == 2


def test_without_glibc_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Musl:
        def __init__(self, name: None) -> None:
            pass

    monkeypatch.setattr("ctypes.PyDLL", Musl)

    assert forked_children._find_exit_handlers() is None


def test_it_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    registered: list[object] = []
    monkeypatch.setattr(os, "register_at_fork", lambda after_in_child: registered.append(after_in_child))
    forked_children.let_children_end.cache_clear()
    # when
    forked_children.let_children_end()
    forked_children.let_children_end()
    # then
    assert len(registered) == 1
