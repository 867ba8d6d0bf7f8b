"""Cells of a notebook that are run again while their run is open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tbmem import MemoryCallback

CELL = """
memory = MemoryCallback(run={"logdir": logdir, "name": name}, profiling={"enabled": False}, output={"summary": False})
memory.start()
memory.step()
kept.append(memory)  # as IPython keeps what a cell returns
"""


class _Session:
    """Runs cells as IPython does: in one namespace, each with its number."""

    def __init__(self, logdir: Path) -> None:
        self.shell = SimpleNamespace(execution_count=0)
        self.kept: list[MemoryCallback] = []
        self.names: dict[str, Any] = {
            "get_ipython": lambda: self.shell,
            "MemoryCallback": MemoryCallback,
            "logdir": str(logdir),
            "kept": self.kept,
        }

    def run(self, cell: str, file: str, name: str | None = None) -> None:
        self.shell.execution_count += 1
        exec(compile(cell, file, "exec"), {**self.names, "name": name})

    @property
    def active(self) -> list[int]:
        """Numbers of the callbacks that are open."""
        return [number for number, memory in enumerate(self.kept) if memory.is_active]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[_Session]:
    opened = _Session(tmp_path)
    yield opened
    for memory in opened.kept:
        memory.stop()


def test_a_cell_that_is_run_again_ends_its_earlier_run(session: _Session) -> None:
    # given
    threads = threading.active_count()
    session.run(CELL, "cell one", "a")
    after_one = threading.active_count()
    # when
    for name in "bcd":
        session.run(CELL, "cell one", name)
    # then
    assert session.active == [3]
    assert threading.active_count() == after_one > threads
    assert session.kept[0].summary is not None


def test_a_cell_that_was_edited_ends_the_run_of_the_same_name(session: _Session) -> None:
    session.run(CELL, "cell one", "a")
    session.run(CELL, "cell one, edited", "a")
    assert session.active == [1]


def test_runs_of_other_cells_and_of_the_same_execution_go_on(session: _Session) -> None:
    session.run(CELL, "cell one", "a")
    session.run(CELL + CELL, "cell two", "b")
    assert session.active == [0, 1, 2]


def test_outside_of_a_notebook_runs_are_left_alone(tmp_path: Path) -> None:
    # given two runs of one name
    run = {"logdir": str(tmp_path), "name": "a"}
    off = {"enabled": False}
    # when / then
    with MemoryCallback(run=run, profiling=off) as first, MemoryCallback(run=run, profiling=off):
        assert first.is_active
