"""A real TensorBoard with torch-tb-profiler opens what tbmem writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tbmem import MemoryCallback
from tests.tensorboard_server import Server

PLUGIN = "/data/plugin/pytorch_profiler"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of two windows each."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "second"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        given = {"run": {"logdir": str(folder), "name": name}, "profiling": {"repeat": 2}}
        with MemoryCallback(given, output={"console": False}) as memory:
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


@pytest.mark.slow
def test_torch_tb_profiler_offers_the_memory_view(server: Server) -> None:
    # given both runs loaded
    assert sorted(server.wait_for(f"{PLUGIN}/runs", "runs", 2)["runs"]) == ["first", "second"]

    # when the memory view of one is asked for
    views = server.get(f"{PLUGIN}/views", run="first")
    (worker,) = server.get(f"{PLUGIN}/workers", run="first", view="Memory")
    spans = server.get(f"{PLUGIN}/spans", run="first", worker=worker)

    # then it is there, under host and rank, with one span per window
    assert "Memory" in views
    assert worker.endswith("_rank0")
    assert spans == ["1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("span", ["1", "2"])
def test_torch_tb_profiler_serves_curve_table_and_events(server: Server, span: str) -> None:
    server.wait_for(f"{PLUGIN}/runs", "runs", 2)
    (worker,) = server.get(f"{PLUGIN}/workers", run="first", view="Memory")
    query = {"run": "first", "worker": worker, "span": span}

    table = server.get(f"{PLUGIN}/memory", **query)
    curve = server.get(f"{PLUGIN}/memory_curve", **query)
    events = server.get(f"{PLUGIN}/memory_events", **query)

    operators = {row[0] for row in table["rows"]["CPU"]}
    assert {"aten::addmm", "aten::empty"} & operators
    assert len(curve["rows"]["CPU"]) > 20
    assert max(row[1] for row in curve["rows"]["CPU"]) > 0
    assert len(events["rows"]["CPU"]) > 20


@pytest.mark.slow
def test_scalars_are_in_tensorboards_own_dashboard(server: Server) -> None:
    tags = server.get("/data/plugin/scalars/tags")

    assert {"memory/host_rss", "memory/utilization_percent"} <= set(tags["first"])
    points = server.get("/data/plugin/scalars/scalars", run="first", tag="memory/host_rss")
    # steps slower than a second in all would be told at once
    assert {point[1] for point in points} >= {10, 14}
    assert 0.01 < points[-1][2] < 100
