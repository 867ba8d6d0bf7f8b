"""The example notebook runs as a user would run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.notebook.kernels import nbformat, run_notebook

pytestmark = pytest.mark.slow


def test_the_example_runs(tmp_path: Path) -> None:
    example = nbformat.read(PROJECT / "examples/notebook.ipynb", as_version=4)
    code = [cell for cell in example.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code)  # it is kept without outputs

    cells, _ = run_notebook([cell.source for cell in code], tmp_path)

    assert [cell.error for cell in cells] == [""] * len(cells)
    stable, leak, keeps, page = cells[2:]
    assert stable.shown[1].startswith("60 steps in ")
    assert leak.shown[1].startswith("200 steps in ")
    assert "list 'history'" in leak.shown[2]
    assert "kept: +32.00 MiB by module-level list 'batches'" in keeps.shown[-1]
    assert "<iframe" in page.html[0]
