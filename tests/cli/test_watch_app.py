"""The keys of `tbmem watch`, pressed by textual's own pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("textual", reason="textual is not installed: pip install 'tbmem[watch]'")

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from tbmem.cli.watch import _updates, _views
from tbmem.cli.watch_app import RunScreen, WatchApp
from tbmem.errors import UsageError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import to_line
from tbmem.model.sample_row import SampleRow
from tbmem.sources.runs.gpu_processes import GpuProcesses
from tests.conftest import MakeSample
from tests.sources.runs.test_gpu_processes import FakeNvml


@pytest.fixture
def logdir(tmp_path: Path, make_sample: MakeSample) -> Path:
    """Three runs that are being written: a leak, a spike, and a small one without findings."""
    found = {"leaks": FindingKind.LEAK, "spikes": FindingKind.SPIKE, "small": None}
    for (name, kind), level in zip(found.items(), (30.0, 60.0, 5.0), strict=True):
        log = tmp_path / name / "plugins/tbmem/monitor.jsonl"
        log.parent.mkdir(parents=True)
        samples = [make_sample(step, level) for step in range(1, 20)]
        rows = [
            SampleRow(
                first_step=each.step, count=1, allocated_min=each.allocated, allocated_max=each.allocated, sample=each
            )
            for each in samples
        ]
        header = {
            "type": "header",
            "schema": 1,
            "started": 1000.0,
            "rank": 0,
            "world_size": 1,
            "host": "here",
            "pid": 1,
        }
        about: dict[str, Any] = {
            "severity": Severity.WARNING,
            "device": "cuda:0",
            "evidence": {},
            "advice": "change it",
        }
        findings = [] if kind is None else [Finding(kind=kind, first_step=1, last_step=9, message="it is so", **about)]
        log.write_text("\n".join(map(to_line, [header, *rows, *findings])) + "\n")
    return tmp_path


def _press(app: WatchApp, act: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with app.run_test(size=(140, 30)) as pilot:
            await pilot.pause()
            await act(pilot)

    asyncio.run(run())


def _app(logdir: Path, nvml: Any = None) -> WatchApp:
    gpus = GpuProcesses(nvml or SimpleNamespace(nvmlInit=_no_driver, NVMLError=OSError))
    return WatchApp(_updates(logdir, True), _views, gpus, interval=3600.0)


def _no_driver() -> None:
    raise OSError("no driver")


def _column(app: WatchApp, number: int = 0) -> list[str]:
    table = app.screen_stack[0].query_one(DataTable)
    return [str(table.get_row_at(row)[number]) for row in range(table.row_count)]


def test_s_sorts_by_the_next_column_and_r_reverses(logdir: Path) -> None:
    app = _app(logdir)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("s")
        assert _column(app) == ["leaks", "small", "spikes"]
        await pilot.press("r")
        assert _column(app) == ["spikes", "small", "leaks"]
        # six columns further are the allocated bytes, as numbers
        await pilot.press(*["s"] * 6)
        assert _column(app, 6) == ["60.00 GiB", "30.00 GiB", "5.00 GiB"]

    _press(app, act)


def test_slash_filters_and_escape_shows_all(logdir: Path) -> None:
    app = _app(logdir)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"LEAK")
        assert _column(app) == ["leaks"]
        await pilot.press("enter", "escape")
        assert sorted(_column(app)) == ["leaks", "small", "spikes"]

    _press(app, act)


def test_enter_opens_the_findings_of_a_run_and_escape_goes_back(logdir: Path) -> None:
    app = _app(logdir)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("s", "enter")
        await pilot.pause()
        assert isinstance(app.screen, RunScreen)
        shown = str(app.screen.query_one("#details", Static).render())
        assert "leaks" in shown
        assert "LEAK  GPU 0 it is so · change it" in shown
        await pilot.press("escape")
        assert not isinstance(app.screen, RunScreen)

    _press(app, act)


def test_the_cursor_stays_on_its_run_when_the_order_changes(logdir: Path) -> None:
    app = _app(logdir)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("s", "down", "down", "r", "enter")
        await pilot.pause()
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run_name == "spikes"

    _press(app, act)


def test_processes_on_gpus_are_below_the_table(logdir: Path) -> None:
    app = _app(logdir, FakeNvml({0: {4711: 3 << 30}}))

    async def act(pilot: Pilot[None]) -> None:
        assert "GPU 0 · 3.00 GiB · pid 4711" in str(app.query_one("#gpus", Static).render())

    _press(app, act)


def test_q_ends_it(logdir: Path) -> None:
    app = _app(logdir)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("q")

    _press(app, act)
    assert app.error is None


def test_a_log_that_cannot_be_read_ends_it_with_the_error() -> None:
    def updates() -> Iterator[Any]:
        raise UsageError("monitor.jsonl: cannot be read")
        yield

    app = WatchApp(updates(), _views, GpuProcesses(FakeNvml({})), interval=3600.0)

    async def act(pilot: Pilot[None]) -> None:
        await pilot.pause()

    _press(app, act)
    assert str(app.error) == "monitor.jsonl: cannot be read"
