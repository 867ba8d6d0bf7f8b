"""What published_tables.py says of a figure, and how it rehearses a program of a clone."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """benchmarks/published_tables.py as a module."""
    return load(PROJECT / "benchmarks" / "published_tables.py")


@pytest.fixture
def row(tables: ModuleType) -> Any:
    """A published 100 GB, allocated, of a program that needs no clone."""
    first = tables.ROWS[0]
    return replace(first, source=None, also=(), edits=(), script="train.py", published=100.0)


def python_that_says(answer: str, folder: Path) -> str:
    """A program that takes the place of Python: it keeps its arguments and prints an answer."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho \"$@\" > {folder}/arguments\necho '{answer}'\necho the reason >&2\n")
    os.chmod(path, 0o755)
    return str(path)


@pytest.mark.parametrize(
    ("published", "new", "cause", "verdict"),
    [
        (100.0, 102.9, "", "agrees"),
        (100.0, 96.9, "", ""),
        (100.0, 96.9, "another torch", "cause below"),
        (None, None, "", "agrees"),
        (None, 100.0, "", ""),
        (100.0, None, "", ""),
    ],
)
def test_a_figure_beyond_the_limit_needs_a_cause(
    tables: ModuleType, row: Any, published: float | None, new: float | None, cause: str, verdict: str
) -> None:
    outcome = tables.Outcome(replace(row, published=published, cause=cause), new)
    assert outcome.verdict == verdict
    assert outcome.cells[-1] == (verdict or "**unexplained**")


def test_the_figure_is_in_the_tables_unit_with_what_the_table_counts_besides(tables: ModuleType, row: Any) -> None:
    table = replace(row.table, figure="reserved", unit=1000, context=500)
    assert table.figure_of({"peak_allocated": 1000, "peak_reserved": 2000}) == 2.5


def test_a_row_is_rehearsed_on_its_gpu_as_rank_of_its_world(tables: ModuleType, row: Any, tmp_path: Path) -> None:
    answer = json.dumps({"fits": True, "peak_allocated": 97 * 10**9, "peak_reserved": 0})
    python = python_that_says(answer, tmp_path)
    outcome = tables.outcome_of(replace(row, world=8), tmp_path, python)
    assert outcome.new == 97.0
    arguments = (tmp_path / "arguments").read_text()
    assert f"rehearse --json --gpu {row.gpu}" in arguments
    assert "--world-size 8" in arguments
    assert "--precision bf16-true" in arguments


def test_a_row_that_runs_out_of_memory_has_no_figure(tables: ModuleType, row: Any, tmp_path: Path) -> None:
    python = python_that_says(json.dumps({"fits": False, "peak_allocated": 1, "peak_reserved": 1}), tmp_path)
    assert tables.outcome_of(row, tmp_path, python).new is None


def test_a_row_without_its_clone_is_skipped_and_one_that_fails_is_named(
    tables: ModuleType, row: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho the reason >&2\n")
    os.chmod(python, 0o755)
    failures: list[str] = []
    rows = [replace(row, source=tables.ROWS[0].source), row]
    assert tables.outcomes_of(rows, tmp_path, str(python), failures) == []
    assert "skipped: " in capsys.readouterr().err
    (failure,) = failures
    assert failure.endswith("the reason")
