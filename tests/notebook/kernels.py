"""Notebooks run in a real kernel, as a user's would be: cells go in, their outputs come out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="no Jupyter: pip install --group notebooks")
nbclient = pytest.importorskip("nbclient", reason="no Jupyter: pip install --group notebooks")
pytest.importorskip("ipykernel", reason="no Jupyter: pip install --group notebooks")

TRAINING = """
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.AdamW(model.parameters())
def train(steps, act=lambda step: None):
    for step in range(1, steps + 1):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        act(step)
"""
"""What the cells of the tests take for granted; ``act`` is called after each step."""
THREADS = "sorted(one.name for one in threading.enumerate() if one.name.startswith('tbmem'))"


class Cell:
    """A cell that was run."""

    def __init__(self, cell: Any) -> None:
        self.outputs: list[Any] = cell.outputs

    @property
    def html(self) -> list[str]:
        """HTML of its outputs that have some."""
        return [one.data["text/html"] for one in self.outputs if "text/html" in one.get("data", {})]

    @property
    def shown(self) -> list[str]:
        """Text of the same outputs."""
        return [one.data["text/plain"] for one in self.outputs if "text/html" in one.get("data", {})]

    @property
    def value(self) -> str:
        """Its last expression."""
        return next((one.data["text/plain"] for one in self.outputs if one.output_type == "execute_result"), "")

    @property
    def error(self) -> str:
        """Its traceback, without colours."""
        found = ["\n".join(one.traceback) for one in self.outputs if one.output_type == "error"]
        assert len(found) <= 1
        return re.sub(r"\x1b\[[\d;]*m", "", "".join(found))

    def stream(self, name: str) -> str:
        """What it has written to ``stdout`` or ``stderr``."""
        return "".join(one.text for one in self.outputs if one.output_type == "stream" and one.name == name)

    @property
    def kinds(self) -> list[str]:
        """Kinds of its outputs, in order."""
        return [str(one.output_type) for one in self.outputs]


def run_notebook(
    cells: Sequence[str], folder: Path, on_output: Callable[[Any, int, Any], None] | None = None
) -> tuple[list[Cell], Any]:
    """Run cells in a new kernel in a folder; the cells with their outputs, and the notebook.

    Args:
        cells: Their text.
        folder: The kernel's folder.
        on_output: Called with the client, the number of the cell and each message about an output of it.
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])

    class Client(nbclient.NotebookClient):  # type: ignore[misc,name-defined]
        def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
            if on_output is not None:
                on_output(self, cell_index, message)
            return super().process_message(message, cell, cell_index)

    client = Client(
        notebook, timeout=120, allow_errors=True, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    asyncio.run(client.async_execute())
    return [Cell(cell) for cell in notebook.cells], notebook
