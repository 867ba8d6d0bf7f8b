"""docs/python_api.md runs as it is written, a script that uses it type-checks, and the names are where tools look."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tbmem
from tests.conftest import PROJECT

_BLOCKS = re.findall(r"```python\n(.*?)```", (PROJECT / "docs/python_api.md").read_text(), flags=re.DOTALL)

TYPED = """
from __future__ import annotations

import torch
import tbmem


def make(batch: int) -> tuple[torch.nn.Module, torch.Tensor]:
    return torch.nn.Linear(batch, 1), torch.zeros(batch)


model = torch.nn.Linear(1, 1)
estimate: tbmem.Estimate = tbmem.estimate(model, torch.zeros(1), optimizer=torch.optim.SGD, gpu=["t4", "h100"])
room: list[int] = [gpu.headroom for gpu in estimate.gpus]
tbmem.estimate(make, 8, fsdp=2, amp=torch.bfloat16, dtype="fp32")
rehearsal: tbmem.Rehearsal = tbmem.rehearse("train.py", "--lr", "3", gpu="t4")
largest: tbmem.Largest = tbmem.rehearse(make, largest="batch=1..8")
report: tbmem.Report = tbmem.report("runs/mine", html="page.html")
with tbmem.record("mine", model=model) as recording:
    with recording.phase("forward"):
        model(torch.zeros(1))
peaks: list[int] = [phase.peak for phase in recording.phases] + [module.saved for module in recording.modules]
with tbmem.MemoryCallback("light") as memory:
    memory.step()
kinds: list[str] = [finding.kind.value for finding in memory.verdicts]
"""


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n\n".join(_BLOCKS))

    done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True, timeout=280, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    output = done.stdout
    assert re.search(r"Estimate of Sequential on t4-16gb: peak [\d.]+ MiB allocated", output)
    assert "a100-40gb fits " in output
    assert (tmp_path / "step.html").is_file()
    # the optimizer makes two moments of each parameter, and a counter of each tensor
    states = 2 * (2 * 1024 * 4096 + 1024 + 4096) * 4 + 4 * 4
    assert re.search(rf"^optimizer .*'OPTIMIZER_STATE': {states}", output, flags=re.MULTILINE)
    assert re.search(r"^0 Linear \d+ \d+ \d+$", output, flags=re.MULTILINE)
    assert "Comparison of " in output
    assert "Summary of runs/mine: 12 steps" in output.replace(str(tmp_path) + "/", "")


@pytest.mark.slow
def test_a_script_of_a_users_own_type_checks(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(TYPED)
    (tmp_path / "wrong.py").write_text("import tbmem\ntbmem.estimate('gpt2', sequence=3)\ntbmem.rehearse('x').peek\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]

    right, wrong = (
        subprocess.run(
            [*command, str(tmp_path / name)], capture_output=True, text=True, timeout=280, cwd=PROJECT, check=False
        )
        for name in ("script.py", "wrong.py")
    )

    assert (right.returncode, right.stdout) == (0, "")
    assert wrong.stdout.count("error:") == 2
    assert 'Unexpected keyword argument "sequence"' in wrong.stdout


def test_names_are_in_dir_and_help() -> None:
    for name in ("estimate", "rehearse", "report", "record", "analyze", "MemoryCallback", "Estimate"):
        assert name in dir(tbmem)
    text = pydoc.plain(pydoc.render_doc(tbmem.MemoryCallback))
    for name in ("summary", "verdicts", "findings", "profiler", "monitor"):
        assert re.search(rf"^ \|  {name}\n \|      \S", text, flags=re.MULTILINE), name
    assert "estimate(" in pydoc.plain(pydoc.render_doc(tbmem.estimate))
