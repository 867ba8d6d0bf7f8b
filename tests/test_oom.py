"""Memory runs out in a real process: a limit of the address space, an adapter-free script, `tbmem run`."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import read_monitor_log

pytestmark = pytest.mark.slow
SCRIPT = """
    import resource, sys
    import psutil, torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(512, 512)

        def forward(self, x):
            return self.inner(x)

    def grow(size):
        return {ask}

    def train(model, optimizer):
        history = []
        for step in range(12):
            model(torch.randn(8, 512)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            history.append(torch.ones(1 << 20))
            step_ended()
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), used + (300 << 20)))
        grow(1 << 31)

    step_ended = lambda: None
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
ASKS = {
    "torch": ("torch.empty(size, dtype=torch.uint8)", "RuntimeError", 1 << 31),
    "python": ("bytearray(size)", "MemoryError", None),
    "numpy": ("__import__('numpy').ones(size, 'uint8')", "MemoryError", 1 << 31),
}


def _finding(folder: Path) -> Finding:
    log = read_monitor_log(folder / "plugins/tbmem/monitor.jsonl")
    (finding,) = [each for each in log.findings if each.kind is FindingKind.OOM]
    return finding


def _check(folder: Path, kind: str) -> None:
    _ask, error, requested = ASKS[kind]
    finding = _finding(folder)
    assert finding.evidence["error"] == error
    assert finding.evidence["requested_bytes"] == requested
    assert finding.evidence["line"].endswith(" in grow()")
    assert finding.evidence["limits"][0]["name"] == "RLIMIT_AS"
    assert "ulimit" in finding.advice
    largest = finding.evidence["holders"][0]
    assert largest["name"] == "list 'history' in train()"
    assert largest["bytes"] == 12 * (4 << 20)
    assert "history.append(torch.ones(1 << 20))" in largest["lines"][0]
    (report,) = folder.glob("*.oom.txt")
    assert "12 parts" in report.read_text()
    end = read_monitor_log(folder / "plugins/tbmem/monitor.jsonl").end
    assert end is not None
    assert [verdict["kind"] for verdict in end["verdicts"]] == ["oom"]


@pytest.mark.parametrize("kind", ASKS)
def test_a_callback_in_a_loop(tmp_path: Path, kind: str) -> None:
    # given a training whose thirteenth step asks for more than the process may have
    head = textwrap.dedent(SCRIPT).replace("{ask}", ASKS[kind][0])
    tail = f"""
        from tbmem import MemoryCallback
        with MemoryCallback(run={{"logdir": {str(tmp_path)!r}, "name": "run"}}) as memory:
            step_ended = memory.step
            train(model, optimizer)
    """
    script = tmp_path / "train.py"
    script.write_text(head + textwrap.dedent(tail))

    # when it runs
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)

    # then it dies of its own exception, and the report says why
    assert done.returncode == 1
    assert (
        done.stderr.rstrip()
        .splitlines()[-1]
        .startswith(("RuntimeError", "MemoryError", "numpy._core._exceptions._ArrayMemoryError", "numpy.exceptions"))
    )
    assert "largest holders" in done.stderr
    _check(tmp_path / "run", kind)


@pytest.mark.parametrize("kind", ["torch", "python"])
def test_an_unmodified_script(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("{ask}", ASKS[kind][0]) + "train(model, optimizer)\n")
    command = [sys.executable, "-m", "tbmem", "run", f"run.logdir={tmp_path}", "run.name=run", "--", str(script)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert ASKS[kind][1] in done.stderr.rstrip().splitlines()[-1]
    _check(tmp_path / "run", kind)


def test_a_callback_that_is_only_started_is_closed_at_exit(tmp_path: Path) -> None:
    head = textwrap.dedent(SCRIPT).replace("{ask}", ASKS["torch"][0])
    tail = f"""
        from tbmem import MemoryCallback
        memory = MemoryCallback(run={{"logdir": {str(tmp_path)!r}, "name": "run"}})
        memory.start()
        step_ended = memory.step
        train(model, optimizer)
    """
    (tmp_path / "train.py").write_text(head + textwrap.dedent(tail))

    done = subprocess.run([sys.executable, str(tmp_path / "train.py")], capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    _check(tmp_path / "run", "torch")


LEAK = """
    import resource
    import psutil, torch

    class Replay:
        def __init__(self):
            self.items = []

    def train():
        model, replay = torch.nn.Linear(256, 8), Replay()
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(20_000):
            batch = torch.randn(512, 256)
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            replay.items.append(batch)
            if step == 20:
                used = psutil.Process().memory_info().vms
                resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), used + (400 << 20)))

    train()
"""


def test_a_leak_in_small_pieces_is_why_to_the_last_byte(tmp_path: Path) -> None:
    # given a program that leaks until not even half a MiB is left
    (tmp_path / "train.py").write_text(textwrap.dedent(LEAK))
    command = [sys.executable, "-m", "tbmem", "run", f"run.logdir={tmp_path}", "run.name=run", "--", "train.py"]
    # when
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    # then
    assert done.returncode == 1
    evidence = _finding(tmp_path / "run").evidence
    assert evidence["reasons"][0]["cause"] == "leak"
    assert evidence["free_bytes"] < 8 << 20
    assert evidence["line"].endswith(" in train()")
    assert evidence["holders"][0]["name"] == "Replay.items"
