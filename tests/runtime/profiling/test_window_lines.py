"""The user's own line of each allocation of a window, on every version of torch that tbmem takes."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.analysis.source_lines import SourceLines
from tbmem.sources.recording import read_recording

pytestmark = [
    pytest.mark.torch_versions,
    pytest.mark.skipif(torch.cuda.is_available() or torch.xpu.is_available(), reason="of the CPU's own traces"),
]

KIB = 1024
PACKAGE = """\
import torch

def noise(rows):
    return torch.randn(rows, 256)
"""
PROGRAM = """\
import hub_of_models
import torch
from tbmem import MemoryCallback

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 256)

    def forward(self, x):
        a = self.first(x)           # forward: a module of torch's
        b = torch.relu(a)           # forward: a function in C
        c = b * 3.0                 # forward: an operator
        return c.sum(dim=1)         # forward: a method

def made(rows):
    a = torch.ones(rows, 256)       # function: made
    b = a + a                       # function: an operator
    return [
        torch.zeros(row, 256)       # function: a comprehension
        for row in (rows + 1, rows + 2)
    ] + [b]

net = Net()
optimizer = torch.optim.Adam(net.parameters())

def loop(memory):
    memory.watch(net, optimizer)
    for _ in range(4):
        in_function = torch.ones(70, 256)   # loop in a function
        memory.step()

with MemoryCallback(overrides=OVERRIDES) as memory:
    for number in range(6):
        x = torch.randn(64, 256)    # inline: made
        y = x - 1.0                 # inline: an operator
        z = (
            y                       # inline: an operator over lines
            * 2.0
        )
        loss = net(z).square().mean()
        loss.backward()             # backward
        optimizer.step()            # optimizer
        optimizer.zero_grad()
        parts = made(40)
        several = [torch.ones(50 + one, 256) for one in range(2)]  # inline: a comprehension
        exec("made_by_exec = torch.ones(60, 256)")  # exec
        noise = hub_of_models.noise(80)     # an installed package
        memory.step()
"""


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filename: str, program: str = PROGRAM) -> None:
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "hub_of_models.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hub_of_models", raising=False)
    overrides = [f"run.logdir={tmp_path}", "run.name=r", "profiling.wait=1", "profiling.warmup=1", "profiling.active=2"]
    exec(compile(program, filename, "exec"), {"__name__": "program", "OVERRIDES": overrides})


def lines_by_size(tmp_path: Path) -> dict[int, set[str]]:
    """The lines of all allocations of each size in KiB."""
    found: dict[int, set[str]] = {}
    for path in (tmp_path / "r").glob("*.pt.trace.json.gz"):
        timeline = read_recording(path).timeline
        lines = SourceLines(timeline.stacks)
        rows = timeline.rows.take(timeline.rows.alloc_event >= 0)
        for size, stack in zip(rows.bytes.tolist(), rows.stack.tolist(), strict=True):
            found.setdefault(size // KIB, set()).add(lines.line(stack).rpartition("/")[2])
    return found


@pytest.fixture(params=["train.py", "<ipython-input-3-0123456789ab>"])
def filename(request: Any, tmp_path: Path) -> Iterator[str]:
    """A program in a file, and one in a notebook's cell."""
    name: str = request.param
    if name.startswith("<"):
        linecache.cache[name] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), name)
        yield name
        del linecache.cache[name]
        return
    (tmp_path / name).write_text(PROGRAM)
    yield str(tmp_path / name)


def test_each_allocation_has_the_innermost_line_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filename: str
) -> None:
    # given a loop whose allocations differ in size, by their rows of 1 KiB
    run(tmp_path, monkeypatch, filename)

    found = lines_by_size(tmp_path)

    short = Path(filename).name

    def at(comment: str, function: str) -> str:
        numbers = [at for at, text in enumerate(PROGRAM.splitlines(), 1) if text.rpartition("# ")[2] == comment]
        return f"{short}:{numbers[0]} {function}"

    assert found[64] == {
        at("inline: made", "<module>"),
        at("inline: an operator", "<module>"),
        at("inline: an operator over lines", "<module>"),
        at("forward: a module of torch's", "forward"),
        at("forward: a function in C", "forward"),
        at("forward: an operator", "forward"),
        at("backward", "<module>"),
    }
    assert {at("backward", "<module>"), at("optimizer", "<module>")} <= found[256]
    assert found[40] == {at("function: made", "made"), at("function: an operator", "made")}
    comprehension = "<listcomp>" if sys.version_info < (3, 12) else "made"
    assert found[41] == {at("function: a comprehension", comprehension)}
    comprehension = "<listcomp>" if sys.version_info < (3, 12) else "<module>"
    assert found[50] == found[51] == {at("inline: a comprehension", comprehension)}
    assert found[60] == {at("exec", "<module>")}
    assert found[80] == {at("an installed package", "<module>")}
    assert not any("step()" in PROGRAM.splitlines()[int(one.split(":")[1].split()[0]) - 1] for one in found[64])


def test_a_loop_that_had_begun_before_the_window_is_told_by_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a loop in a function, whose frame is the one that the window begins in
    program = PROGRAM.partition("with MemoryCallback")[0] + (
        "with MemoryCallback(overrides=OVERRIDES) as memory:\n    loop(memory)\n"
    )
    (tmp_path / "train.py").write_text(program)

    run(tmp_path, monkeypatch, str(tmp_path / "train.py"), program)

    line = next(at for at, text in enumerate(program.splitlines(), 1) if "# loop in a function" in text)
    assert lines_by_size(tmp_path)[70] == {f"train.py:{line} loop"}
