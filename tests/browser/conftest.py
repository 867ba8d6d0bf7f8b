"""What browser tests share: runs of the demo, a TensorBoard that serves them, a headless Chromium."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driving import BROWSER, DRIVER, MISSING, Browser, pictures_folder
from tests.offline.snapshots import write_snapshot
from tests.tensorboard_server import Server

HOSTILE = "<img src=x onerror=alert(1)> & 'quotes'"
SIZES = [64 << 20, 32 << 20, 3 << 20, 700]
RUNS = {"stable": ("--steps", "14"), "leak": ("--steps", "80", "--inject", "leak")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.browser)
            if BROWSER is None or DRIVER is None:
                item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="session")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of ``tbmem demo``, one of which leaks; four ranks of their logs; a GPU's snapshot; a strange name."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in RUNS.items():
        command = [sys.executable, "-m", "tbmem", "demo", "--logdir", str(folder), "--device", "cpu", *options]
        subprocess.run([*command, f"run.name={name}"], check=True, capture_output=True, timeout=240)
    for rank in range(4):
        copy_log(folder / ("leak" if rank == 2 else "stable"), folder / f"ranks/rank{rank}", rank)
    copy_log(folder / "stable", folder / HOSTILE, 0)
    (folder / "gpu").mkdir()
    write_snapshot(folder / "gpu/host_rank0.1.snapshot.pickle", SIZES, freed=[5 << 20])
    return folder


def copy_log(source: Path, target: Path, rank: int) -> None:
    """The live log of a run as that of another rank."""
    lines = (source / "plugins/tbmem/monitor.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    (target / "plugins/tbmem").mkdir(parents=True)
    text = "".join(json.dumps({**one, "rank": rank} if "rank" in one else one) + "\n" for one in records)
    (target / "plugins/tbmem/monitor.jsonl").write_text(text)


@pytest.fixture(scope="session")
def server(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(logdir, tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    running = Browser(pictures_folder(tmp_path_factory.mktemp("pictures")))
    yield running
    running.close()
