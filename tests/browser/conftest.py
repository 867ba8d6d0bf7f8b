"""What browser tests share: runs of the demo, a TensorBoard that serves them, a headless Chromium."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driving import BROWSER, DRIVER, MISSING, Browser, pictures_folder
from tests.tensorboard_server import Server

RUNS = {"stable": ("--steps", "14"), "leak": ("--steps", "60", "--inject", "leak")}


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
    """Two runs of ``tbmem demo``, one of which leaks."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in RUNS.items():
        command = [sys.executable, "-m", "tbmem", "demo", "--logdir", str(folder), "--device", "cpu", *options]
        subprocess.run([*command, f"run.name={name}"], check=True, capture_output=True, timeout=240)
    return folder


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
