"""The shell lines of docs/commands.md and docs/guide.md run, in the pages' order, and are right."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tbmem import MemoryCallback
from tbmem.cli.entry import main
from tbmem.cli.launch import plain_spec
from tbmem.config import load_config
from tbmem.runtime.launch.program import FIRST
from tbmem.runtime.launch.script import Program
from tests.conftest import PROJECT, read_malloc_at_each_step
from tests.offline.snapshots import write_snapshot

RUN = "20260501-120000"


def _commands(page: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (PROJECT / "docs" / page).read_text(), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


STARTS = [line for line in _commands("commands.md") if "tbmem run " in line]
OTHERS = [line for line in [*_commands("commands.md"), *_commands("guide.md")] if "tbmem run " not in line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages take for granted: a run with a trace, snapshots of several ranks, scripts and configurations."""
    folder = tmp_path_factory.mktemp("pages")
    model = torch.nn.Linear(16, 16)
    sections = {"monitor": {"log_every_n_steps": 1}, "profiling": {"warmup": 1, "active": 1, "repeat": 1}}
    with (
        pytest.MonkeyPatch.context() as patch,
        MemoryCallback(run={"logdir": str(folder / "runs"), "name": RUN}, **sections) as memory,
    ):
        read_malloc_at_each_step(patch)
        for _ in range(20):
            model(torch.randn(4, 16)).sum().backward()
            memory.step()
    for name in ("before", "after"):
        shutil.copytree(folder / "runs" / RUN, folder / name)
    (trace,) = (folder / "runs" / RUN).glob("*.trace.json.gz")
    shutil.copy(trace, folder / "trace.json.gz")
    for iteration in (1, 2):
        (folder / f"out/iteration_{iteration}").mkdir(parents=True)
        write_snapshot(folder / f"out/iteration_{iteration}/rank0.pickle", [1 << 20])
    shutil.copytree(PROJECT / "configs", folder / "configs")
    (folder / "package").mkdir()
    (folder / "package/train.py").touch()
    (folder / "train.py").touch()
    return folder


@pytest.mark.parametrize("line", STARTS)
def test_what_is_started_is_found_with_its_settings(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the folder of the page
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    # when the words after `tbmem run` are read (tests/cli/test_run.py runs such programs)
    order = plain_spec(shlex.split(line.partition("tbmem run ")[2]))

    # then they name a program that is there, and settings that there are
    assert order is not None
    program = Program.find(order.words)
    assert Path(program.path).name == "train.py"
    assert program.arguments in ((), ("--lr", "3"))
    assert load_config(order.config, order.overrides) != load_config() or not (order.config or order.overrides)
    assert order.step_on == FIRST


@pytest.mark.parametrize("line", OTHERS)
def test_what_is_done_with_runs(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(line.replace("<run>", RUN), comments=True)
    # pictures take seconds, and have their own tests
    monkeypatch.setattr(sys, "argv", [*words, *(["--json"] if words[1] == "analyze" else [])])

    with pytest.raises(SystemExit) as ended:
        main()

    shown = capsys.readouterr()
    assert ended.value.code in (0, None), shown.err
    assert shown.out


def test_the_pages_have_commands() -> None:
    assert len(STARTS) >= 4
    assert len(OTHERS) >= 11
