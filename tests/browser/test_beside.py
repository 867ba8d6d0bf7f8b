"""The Memory tab in other company: beside torch-tb-profiler, behind a prefix, with the slow loader, with no data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import looking
from tests.browser.driving import Browser
from tests.tensorboard_server import Server

OTHER_TAB = "iframe[src*='name=pytorch_profiler']"


def test_torch_tb_profiler_and_the_memory_tab_both_work(browser: Browser, server: Server) -> None:
    server.wait_for("/data/plugin/pytorch_profiler/runs", "runs", 2)

    browser.open(f"{server.address}/#tbmem", "overview")
    assert {"leak", "stable"} <= set(looking.column(browser, "runs", 1))

    # the other one draws its charts with a library from the internet, but names its runs without
    browser.leave()
    browser.script("location.hash = '#pytorch_profiler'")
    browser.enter(OTHER_TAB)
    browser.until("document.body.textContent.includes('leak') || document.body.textContent.includes('stable')")
    browser.picture("beside-torch-tb-profiler")

    # and back
    browser.leave()
    browser.script("location.hash = '#tbmem'")
    browser.enter()
    browser.go("live")
    browser.until("document.querySelector('#live-plot')?.chart?.lines.length > 0")


@pytest.mark.parametrize(
    "options",
    [("--path_prefix", "/a/b"), ("--load_fast", "false"), ("--logdir_spec",)],
    ids=["path_prefix", "load_fast", "logdir_spec"],
)
def test_however_tensorboard_was_started(
    browser: Browser, logdir: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    spec = options[0] == "--logdir_spec"
    given = (*options, f"one:{logdir}") if spec else options
    running = Server(None if spec else logdir, tmp_path / "log.txt", *given)
    try:
        browser.hosts()
        browser.complaints()
        browser.open(f"{running.address}/#tbmem", "overview")
        assert any("leak" in name for name in looking.column(browser, "runs", 1))
        browser.go("live")
        browser.until("document.querySelector('#live-plot')?.chart?.lines.length > 0")
        browser.go("timeline")
        browser.wait_for(lambda: looking.painted(browser, 0) > 2)
        assert browser.hosts() == {"127.0.0.1"}
        assert browser.complaints() == []
    finally:
        running.close()


def test_an_empty_folder_tells_how_to_get_data(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    running = Server(tmp_path / "runs", tmp_path / "log.txt")
    try:
        browser.script("window.stop()")
        browser.complaints()
        browser.open(f"{running.address}/#tbmem", "overview")
        assert "tbmem" in browser.text(".empty")
        browser.picture("empty")
        assert browser.complaints() == []
    finally:
        running.close()
