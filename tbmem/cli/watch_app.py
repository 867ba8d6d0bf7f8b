"""The view of ``tbmem watch`` with keys, made with textual: sorts, filters and opens runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from tbmem.errors import TbmemError
from tbmem.offline.live_logs import FollowedRun
from tbmem.present.text.watch_table import (
    COLUMNS,
    filtered_rows,
    gpu_process_lines,
    run_details,
    runs_by_pid,
    sorted_rows,
    watch_rows,
)
from tbmem.sources.runs.gpu_processes import GpuProcesses

Updates = Iterator[tuple[list[FollowedRun], bool]]
Views = Callable[[Sequence[FollowedRun]], list[dict[str, Any]]]


class RunScreen(Screen[None]):
    """One run with all of its findings, kept up to date."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,backspace,enter", "app.pop_screen", "back")]

    def __init__(self, run: str) -> None:
        super().__init__()
        self.run_name = run
        self._text = Static(id="details")

    def compose(self) -> ComposeResult:
        """The text, which scrolls, and the keys."""
        yield VerticalScroll(self._text)
        yield Footer()

    def on_mount(self) -> None:
        """Show what was read last."""
        self.show()

    def show(self) -> None:
        """Show the present state."""
        app = self.app
        assert isinstance(app, WatchApp)  # nosec B101  # for the type checker
        view = next((view for view in app.views if view["run"] == self.run_name), None)
        if view is not None:
            self._text.update(Text("\n").join(run_details(view, max(self.size.width - 4, 40))))


class WatchApp(App[None]):
    """The runs of a folder in a table.

    Args:
        updates: Gives the runs, read up to now, and whether the single run that is watched has ended.
        views: Their states as plain values.
        gpus: Processes on GPUs.
        interval: Seconds between two updates.
    """

    CSS = "#filter { display: none; } #filter.open { display: block; } #gpus { height: auto; max-height: 8; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort by next column"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "clear", "clear filter", show=False),
        Binding("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, updates: Updates, views: Views, gpus: GpuProcesses, interval: float = 1.0) -> None:
        super().__init__()
        self.views: list[dict[str, Any]] = []
        self.error: TbmemError | None = None
        """What ended the view, if a log could not be read."""
        self._updates, self._views, self._gpus, self._interval = updates, views, gpus, interval
        self._runs: list[FollowedRun] = []
        self._sorted_by: int | None = None
        self._falls = False
        self._words = ""
        self._table: DataTable[str] = DataTable(id="runs", cursor_type="row", zebra_stripes=True)
        self._filter = Input(id="filter", placeholder="words that a row must have; Enter keeps them, Escape clears")
        self._processes = Static(id="gpus", markup=False)

    def compose(self) -> ComposeResult:
        """The filter, the table, the processes on GPUs, and the keys."""
        yield self._filter
        yield self._table
        yield self._processes
        yield Footer()

    def on_mount(self) -> None:
        """Read the runs, now and then at intervals."""
        self.update_runs()
        self._table.focus()
        self.set_interval(self._interval, self.update_runs)

    def update_runs(self) -> None:
        """Read what was written since the last time; ends once the single run has ended."""
        try:
            self._runs, is_over = next(self._updates)
        except TbmemError as error:
            self.error = error
            self.exit()
            return
        self.views = self._views(self._runs)
        self._draw()
        if isinstance(self.screen, RunScreen):
            self.screen.show()
        if is_over:
            self.exit()

    def _draw(self) -> None:
        rows = filtered_rows(watch_rows(self.views), self._words)
        if self._sorted_by is not None:
            rows = sorted_rows(rows, self._sorted_by, falling=self._falls)
        table, chosen = self._table, self._chosen()
        table.clear(columns=True)
        for number, title in enumerate(COLUMNS):
            arrow = ("▼" if self._falls else "▲") if number == self._sorted_by else ""
            table.add_column(f"{title} {arrow}".strip(), key=title)
        for row in rows:
            table.add_row(*row.cells, key=row.key)
        keys = [row.key for row in rows]
        if chosen in keys:
            table.move_cursor(row=keys.index(chosen))
        by_pid = runs_by_pid({run.files.name: run.states for run in self._runs}, socket.gethostname())
        self._processes.update("\n".join(gpu_process_lines(self._gpus.read(), by_pid)))

    def _chosen(self) -> str:
        """Key of the row at the cursor; empty where the table has none."""
        if not self._table.row_count:
            return ""
        return str(self._table.coordinate_to_cell_key(self._table.cursor_coordinate).row_key.value)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the run of a row."""
        rows = {row.key: row.run for row in watch_rows(self.views)}
        name = rows.get(str(event.row_key.value))
        if name is not None:
            self.push_screen(RunScreen(name))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column that was clicked; once more reverses it."""
        if event.column_index == self._sorted_by:
            self._falls = not self._falls
        self._sorted_by = event.column_index
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while words are typed."""
        self._words = event.value
        self._draw()

    def on_input_submitted(self) -> None:
        """Keep the filter and return to the table."""
        self._table.focus()

    def action_sort(self) -> None:
        """Sort by the next column, after the last by none."""
        following = 0 if self._sorted_by is None else self._sorted_by + 1
        self._sorted_by = following if following < len(COLUMNS) else None
        self._draw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._falls = not self._falls
        self._draw()

    def action_filter(self) -> None:
        """Type words to filter by."""
        self._filter.add_class("open")
        self._filter.focus()

    def action_clear(self) -> None:
        """Show all rows again."""
        self._filter.remove_class("open")
        self._filter.value = ""
        self._table.focus()
