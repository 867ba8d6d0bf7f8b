"""A real TensorBoard, started as a user would: tbmem's tab beside torch-tb-profiler's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch

from tbmem import MemoryCallback
from tests.tensorboard_server import Server

NAMED = [point.name for point in metadata.entry_points(group="tensorboard_plugins")]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("tbmem" not in NAMED, reason="tbmem was installed before it had a plugin"),
]
OURS, THEIRS = "/data/plugin/tbmem", "/data/plugin/pytorch_profiler"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under the callback, with its windows."""
    folder = tmp_path_factory.mktemp("runs")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    with MemoryCallback(run={"logdir": str(folder), "name": "first"}, output={"console": False}) as memory:
        for _ in range(14):
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            memory.step()
    return folder


@pytest.fixture(scope="module")
def server(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(logdir, tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.close()


def test_both_tabs_are_listed_and_serve(server: Server) -> None:
    # given torch-tb-profiler has loaded the run
    server.wait_for(f"{THEIRS}/runs", "runs", 1)

    listed = server.get("/data/plugins_listing")

    assert (listed["tbmem"]["tab_name"], listed["tbmem"]["enabled"]) == ("Memory", True)
    assert listed["pytorch_profiler"]["enabled"]
    # theirs serves its memory view
    (worker,) = server.get(f"{THEIRS}/workers", run="first", view="Memory")
    curve = server.get(f"{THEIRS}/memory_curve", run="first", worker=worker, span="1", memory_metric="KB")
    assert curve["rows"]["CPU"]
    # and ours its own, of the same file
    (run,) = server.get(f"{OURS}/data/index")["runs"]
    assert (run["run"], run["status"]) == ("first", "ended")
    for one in run["recordings"]:
        timeline = server.get(f"{OURS}/data/timeline", run="first", file=one["file"])
        assert timeline["head"]["device"] == "cpu"
        assert timeline["peak"]["bytes"] == max(timeline["total"]) > 0


def test_the_operators_are_those_of_torch_tb_profiler(server: Server) -> None:
    # given both tables of the first window
    server.wait_for(f"{THEIRS}/runs", "runs", 1)
    (worker,) = server.get(f"{THEIRS}/workers", run="first", view="Memory")
    theirs = server.get(f"{THEIRS}/memory", run="first", worker=worker, span="1")
    (run,) = server.get(f"{OURS}/data/index")["runs"]
    ours = server.get(f"{OURS}/data/operators", run="first", file=run["recordings"][0]["file"])["columns"]

    # then what each operator allocated itself is the same, and how often
    column = {name["name"]: place for place, name in enumerate(theirs["columns"])}
    expected = {
        row[column["Operator Name"]]: (
            row[column["Self Allocation Count"]],
            row[column["Self Allocation Size (KB)"]],
            row[column["Self Size Increase (KB)"]],
            row[column["Allocation Size (KB)"]],
        )
        for row in theirs["rows"]["CPU"]
    }
    sizes = [[size / 1024 for size in ours[key]] for key in ("self_allocated", "self_size_increase", "allocated")]
    found = dict(zip(ours["name"], zip(ours["self_allocations"], *sizes, strict=True), strict=True))
    assert set(expected) <= set(found)
    for name, figures in expected.items():
        assert found[name] == pytest.approx(figures, abs=0.02), name


@pytest.mark.parametrize(
    ("options", "prefix", "run"),
    [
        (("--load_fast=false", "--logdir", "LOGDIR"), "", "first"),
        (("--path_prefix=/some/where", "--logdir", "LOGDIR"), "", "first"),
        (("--logdir_spec", "one:LOGDIR,two:LOGDIR/first"), "", "one/first"),
    ],
    ids=["load_fast", "path_prefix", "logdir_spec"],
)
def test_options_of_tensorboard(options: tuple[str, ...], prefix: str, run: str, logdir: Path, tmp_path: Path) -> None:
    server = Server(None, tmp_path / "log.txt", *(option.replace("LOGDIR", str(logdir)) for option in options))
    try:
        index = server.get(f"{OURS}/data/index")
        assert run in [one["run"] for one in index["runs"]]
        assert server.get("/data/plugins_listing")["tbmem"]["enabled"]
        assert server.get(f"{OURS}/data/overview", run=run)["runs"][0]["cards"]
    finally:
        server.close()


def test_the_home_folder_as_typed(logdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a folder that TensorBoard gets with its tilde
    shutil.copytree(logdir / "first", tmp_path / "logs/first")
    monkeypatch.setitem(os.environ, "HOME", str(tmp_path))

    server = Server(Path("~/logs"), tmp_path / "log.txt")

    try:
        assert [one["run"] for one in server.get(f"{OURS}/data/index")["runs"]] == ["first"]
    finally:
        server.close()
