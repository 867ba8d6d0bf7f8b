"""Commands as a shell calls them, and a run to call them on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tbmem import MemoryMonitor
from tbmem.cli.entry import main
from tests.json_output import validate


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs a command in a folder of its own; JSON that it prints has to fit its published schema."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["tbmem", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        if "--json" in arguments and out:
            validate(str(arguments[0]), json.loads(out))
        return Done(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    return call


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of thirty steps that hold what they hold."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    with MemoryMonitor(folder=folder, console=False, log_every_n_steps=1) as monitor:
        for _ in range(30):
            monitor.step()
    return folder
