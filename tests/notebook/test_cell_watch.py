"""A cell that is watched, without a kernel: steps, files, and what takes the place of what."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import torch

from tbmem.errors import RunFolderError
from tbmem.model.cell_memory import CellLevels, CellMemory
from tbmem.notebook.cell_watch import CellWatch
from tbmem.notebook.options import parse_options
from tbmem.runtime.callback import MemoryCallback
from tbmem.runtime.cell_meter import CellMeter
from tests.notebook.conftest import Shell


def train(steps: int, memory: MemoryCallback | None = None) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        if memory is not None:
            memory.step()


def watch(shell: Shell, folder: Path, options: str = "") -> CellWatch:
    return CellWatch(shell, parse_options(f"-c light --logdir '{folder}' {options}"))


def test_a_training_loop_is_a_run(shell: Shell, tmp_path: Path) -> None:
    watched = watch(shell, tmp_path / "runs", "--name run")
    train(5)
    watched.end()

    assert [text.split(" in ")[0] for _, text, is_update in shell.shown if not is_update] == [
        *("tbmem: memory over time", "5 steps", "cell")
    ]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run"]


def test_the_peak_of_the_cell_is_no_lower_than_that_of_its_run(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run whose peak was read some pages higher
    watched = watch(shell, tmp_path, "--no-chart")
    train(5)
    monkeypatch.setattr(
        CellMeter,
        "end",
        lambda meter, error: CellMemory(seconds=1.0, levels=(CellLevels(device="cpu", before=0, after=0, peak=1),)),
    )
    watched.end()
    # then
    summary, cell = (text for _, text, _ in shell.shown)
    (peak,) = re.findall(r"resident peak CPU: ([\d.]+ .iB)", summary)
    assert f"peak in the cell {peak}" in cell


def test_a_variable_gets_the_result(shell: Shell, tmp_path: Path) -> None:
    # given two cells, of which one has steps
    for steps in (5, 0):
        watched = watch(shell, tmp_path, "--into result --no-chart")
        train(steps)
        # when
        watched.end()
        # then
        result = shell.user_ns["result"]
        assert result.memory.seconds > 0
        assert (result.summary.steps if steps else result.summary) == (steps or None)


def test_without_steps_no_file_is_left(shell: Shell, tmp_path: Path) -> None:
    watched = watch(shell, tmp_path / "runs")
    watched.end()

    assert shell.shown[-1][1].startswith("cell in ")
    assert list(tmp_path.iterdir()) == []


def test_an_optimizer_that_is_not_there_is_told(shell: Shell, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = watch(shell, tmp_path, "--step-on Adm")
    with caplog.at_level("WARNING", "tbmem"):
        train(3)
        watched.end()

    assert caplog.messages == [
        "no training step was seen so far: --step-on Adm counts none of the optimizers that stepped (SGD)"
    ]


def test_a_folder_that_was_there_stays(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()

    watch(shell, tmp_path / "runs").end()

    assert list((tmp_path / "runs").iterdir()) == []


def test_memory_that_runs_out_in_the_first_step_is_a_run(shell: Shell, tmp_path: Path) -> None:
    watched = watch(shell, tmp_path, "--name run")

    watched.end(torch.OutOfMemoryError("CUDA out of memory."))

    assert "0 steps in " in shell.shown[-2][1]
    assert "out of memory" in shell.shown[-2][1]
    assert (tmp_path / "run").is_dir()


def test_both_runs_of_a_cell_are_shown(shell: Shell, tmp_path: Path) -> None:
    # given a cell that trains, and then once more with a callback of its own
    watched = watch(shell, tmp_path, "--name run --no-chart")
    train(5)
    with MemoryCallback("light", run={"logdir": str(tmp_path), "name": "own"}, output={"console": False}) as memory:
        train(3, memory)
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("tbmem")]
    watched.end()

    # then the first run had ended when the second began
    assert threads.count("tbmem") == 1
    assert [text.split(" in ")[0] for _, text, _ in shell.shown] == ["5 steps", "3 steps", "cell"]


def test_a_terminal_has_no_chart(tmp_path: Path) -> None:
    class Terminal(Shell):
        kernel = None

    shell = Terminal()
    watched = watch(shell, tmp_path)
    train(3)
    watched.end()

    assert [text.split(" in ")[0] for _, text, _ in shell.shown] == ["3 steps", "cell"]


def test_switched_off_it_does_nothing(shell: Shell, tmp_path: Path) -> None:
    watched = watch(shell, tmp_path / "runs", "enabled=false")
    watched.end()

    assert (shell.shown, list(tmp_path.iterdir())) == ([], [])


def test_what_cannot_be_opened_leaves_nothing_on(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RunFolderError):
        watch(shell, tmp_path / "file" / "runs")

    # and the next callback has no observer
    from tbmem.runtime.run_observer import RunObservers

    assert RunObservers._observers == ()
