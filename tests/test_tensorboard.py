"""A real TensorBoard with torch-tb-profiler opens what tbmem writes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem import MemoryCallback

PLUGIN = "/data/plugin/pytorch_profiler"


class Server:
    """A TensorBoard that was started for the tests."""

    def __init__(self, logdir: Path, log: Path) -> None:
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0"]
        self._log = log
        with log.open("w") as lines:
            # its own session: it starts a data server and a process per trace, which must all end with it
            self._process = subprocess.Popen(
                [*command, "--host", "127.0.0.1"], stdout=lines, stderr=lines, start_new_session=True
            )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            found = re.search(r"http://[^/\s]+:\d+/", self._log.read_text())
            if found:
                return found[0].rstrip("/")
            time.sleep(0.1)
        raise AssertionError(self._log.read_text())

    def get(self, path: str, **query: str) -> Any:
        """The JSON at a path."""
        url = f"{self._address}{path}?{urllib.parse.urlencode(query)}"
        with self._opener.open(urllib.request.Request(url), timeout=60) as answer:
            body = answer.read()
        if body[:2] == b"\x1f\x8b":
            import gzip

            body = gzip.decompress(body)
        return json.loads(body)

    def wait_for(self, path: str, key: str, count: int) -> Any:
        """The JSON at a path once ``key`` has ``count`` entries."""
        deadline = time.monotonic() + 120
        answer: Any = None
        while time.monotonic() < deadline:
            answer = self.get(path)
            if len(answer[key]) >= count and not answer.get("loading"):
                return answer
            time.sleep(0.5)
        raise AssertionError(answer)

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the guide's schedule."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "second"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        with MemoryCallback(run={"logdir": str(folder), "name": name}, output={"console": False}) as memory:
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
