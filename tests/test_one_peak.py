"""One real run with profiler windows: its peak, with its step and what it leaves, is the same on every screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tbmem
from tbmem.cli.main import app
from tbmem.model.run_summary import RunSummary
from tests.plugin.test_plugin import Tab

HELD = 64 << 20


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    """Forty steps, ten to a row of the log, one of them with more than the others in the middle of a row."""
    logdir = tmp_path_factory.mktemp("peaks")
    sections = {"run": {"logdir": str(logdir), "name": "a"}, "profiling": {"wait": 1, "warmup": 1, "active": 2}}
    with tbmem.MemoryCallback(monitor={"log_every_n_steps": 10}, **sections) as memory:
        for step in range(1, 41):
            needed = torch.ones((HELD if step == 27 else 1 << 20) // 4)
            needed.sum()
            del needed
            memory.step()
    assert memory.summary is not None
    return memory.summary


def _json(*arguments: str) -> object:
    return json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)


def test_the_peak_is_the_same_everywhere(summary: RunSummary) -> None:
    (peak,) = summary.peaks
    run = Path(summary.folder)
    # when
    ((watched,),) = ([rank["devices"][0] for rank in one["ranks"]] for one in _json("watch", str(run), "--json"))  # type: ignore[attr-defined]
    (checked,) = _json("check", str(run), "--max-peak", "1TiB", "--json")["checks"]  # type: ignore[index]
    (reported,) = _json("report", str(run), "--json")["peaks"]  # type: ignore[index]
    tab = Tab(str(run.parent))
    (card,) = tab.data("overview?run=a").json["runs"][0]["cards"]
    ranks = tab.data("ranks?run=a").json["columns"]
    compared = tab.data("compare?before=a&after=a").json["runs"][0]["totals"]
    # then
    assert (watched["peak"], watched["peak_step"], watched["headroom"]) == (peak.bytes, peak.step, peak.headroom)
    assert (card["peak"], card["peak_step"], card["headroom"]) == (peak.bytes, peak.step, peak.headroom)
    assert (reported["bytes"], reported["step"], reported["headroom"]) == (peak.bytes, peak.step, peak.headroom)
    assert (ranks["peak"], ranks["headroom"]) == ([peak.bytes], [peak.headroom])
    assert checked["measured"] == peak.of_the_program  # a limit is one of the program
    assert f" in step {peak.step}" in checked["message"]
    assert compared["after"][compared["name"].index("run_peak_bytes")] == peak.of_the_program
    assert not any(window["first_step"] <= peak.step <= window["last_step"] for window in _windows(run))


def _windows(run: Path) -> list[dict[str, int]]:
    lines = map(json.loads, (run / "plugins/tbmem/monitor.jsonl").read_text().splitlines())
    return [line for line in lines if line["type"] == "window"]
