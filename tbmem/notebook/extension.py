"""The IPython extension: ``%load_ext tbmem`` adds the magics ``%%tbmem`` and ``%tbmem``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tbmem.errors import TbmemError

if TYPE_CHECKING:
    from tbmem.notebook.cell_watch import CellWatch

NAME = "tbmem"
_CELL = re.compile(rf"%%{NAME}(?=\s|$)")


class MemoryMagic:
    """The magics of one IPython."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._watch: CellWatch | None = None

    def load(self) -> None:
        """Add the magics."""
        self._shell.register_magic_function(self.tbmem, "line_cell", NAME)
        self._shell.input_transformers_cleanup.append(self.transform)
        self._shell.events.register("post_run_cell", self.after_cell)

    def unload(self) -> None:
        """Remove them; a cell that is being watched is watched no more."""
        for kind in ("line", "cell"):
            self._shell.magics_manager.magics[kind].pop(NAME, None)
        self._shell.input_transformers_cleanup.remove(self.transform)
        self._shell.events.unregister("post_run_cell", self.after_cell)
        self._end(None)

    def transform(self, lines: list[str]) -> list[str]:
        """A cell that begins with ``%%tbmem`` as one whose first line is the magic ``%tbmem``.

        The cell is then run by IPython itself, not by a magic: its traceback, its value and ``await`` are as usual.
        """
        if not (lines and _CELL.match(lines[0])):
            return lines
        from IPython.core.inputtransformer2 import cell_magic

        # another magic may follow: %%time
        return [lines[0][1:], *cell_magic(lines[1:])]

    def tbmem(self, line: str, cell: str | None = None) -> None:
        """Watch the memory of this cell.

        %%tbmem [-c CONFIG] [--name NAME] [--logdir DIR] [--step-on OPTIMIZER] [--into VARIABLE] [--no-chart]
                [KEY=VALUE]...

        A training loop is monitored and profiled as by ``tbmem run``: each optimizer step is a step, no callback is
        needed. A chart is drawn while the cell runs, and the summary is shown at its end. ``%tbmem`` on a line within a
        cell watches what follows in the cell.

        -c CONFIG            a YAML file, or light, deep or oom
        --name NAME          name of the run's folder, by default the time
        --logdir DIR         folder for all runs, by default runs
        --step-on OPTIMIZER  optimizer whose steps are counted: first, 2 (the second), a class's name, or each
        --into VARIABLE      variable that gets the result: its ``summary`` and the cell's ``memory``
        --no-chart           only the summary
        KEY=VALUE            any setting: profiling.active=5
        """
        from IPython.core.error import UsageError

        if cell is not None:  # called by a program: a cell that is typed has been transformed
            self._shell.run_cell(f"%{NAME} {line}\n{cell}").raise_error()
            return
        from tbmem.notebook.cell_watch import CellWatch
        from tbmem.notebook.options import parse_options

        self._end(None)
        try:
            self._watch = CellWatch(self._shell, parse_options(line))
        except TbmemError as error:
            raise UsageError(str(error)) from None  # IPython prints its message without a traceback

    def after_cell(self, result: Any) -> None:
        """Called by IPython after each cell."""
        self._end(result.error_in_exec if result is not None else None)

    def _end(self, error: BaseException | None) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end(error)


_loaded: dict[int, MemoryMagic] = {}
"""By ``id`` of the shell; there is one in a process, but for tests."""


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext tbmem``."""
    if id(shell) not in _loaded:
        magic = _loaded[id(shell)] = MemoryMagic(shell)
        magic.load()


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext tbmem``."""
    magic = _loaded.pop(id(shell), None)
    if magic is not None:
        magic.unload()
