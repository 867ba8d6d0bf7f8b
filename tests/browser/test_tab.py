"""The Memory tab in a real TensorBoard and a real Chromium: each view shows its numbers, asks no other host, complains
of nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser import looking
from tests.browser.conftest import HOSTILE
from tests.browser.driving import Browser
from tests.tensorboard_server import Server

PLUGIN = "/data/plugin/tbmem/data"
LOCAL = {"127.0.0.1"}


@pytest.fixture(scope="module")
def ask(server: Server) -> looking.Ask:
    def answer(view: str, **parameters: str) -> Any:
        return server.get(f"{PLUGIN}/{view}", **parameters)

    return answer


@pytest.fixture(scope="module")
def trace(ask: looking.Ask) -> str:
    """The first recording of the run that leaks."""
    (leak,) = [one for one in ask("index")["runs"] if one["run"] == "leak"]
    return str(leak["recordings"][0]["file"])


def address(server: Server, view: str, **state: str) -> str:
    """Address of a view, as a link to it has it."""
    pairs = {"view": view, **state}
    return f"{server.address}/#tbmem&" + "&".join(f"p.tbmem.{key}={quote(value)}" for key, value in pairs.items())


SEEN: dict[str, Callable[[Browser, looking.Ask, str], None]] = {
    "overview": lambda browser, ask, file: looking.see_overview(browser, ask, "leak"),
    "live": lambda browser, ask, file: looking.see_live(browser, ask, "leak"),
    "timeline": lambda browser, ask, file: looking.see_timeline(browser, ask, "leak", file),
    "peak": lambda browser, ask, file: looking.see_peak(browser, ask, "leak", file),
    "operators": lambda browser, ask, file: looking.see_operators(browser, ask, "leak", file),
    "segments": lambda browser, ask, file: looking.see_segments(browser, ask, "leak", file),
    "steps": lambda browser, ask, file: looking.see_steps(browser, ask, "leak", file),
    "ranks": lambda browser, ask, file: looking.see_ranks(browser, ask, "leak"),
    "compare": lambda browser, ask, file: looking.see_compare(browser, ask, "stable", "leak"),
    "estimate": lambda browser, ask, file: looking.see_estimate(browser, ask, "leak"),
}


@pytest.mark.parametrize("view", SEEN)
def test_each_view_shows_the_numbers_of_its_answer(
    browser: Browser, server: Server, ask: looking.Ask, trace: str, view: str
) -> None:
    browser.complaints()
    browser.hosts()

    browser.open(address(server, view, run="leak", file=trace, before="stable", after="leak"), view)

    SEEN[view](browser, ask, trace)
    browser.picture(f"tab-{view}")
    assert browser.hosts() == LOCAL
    assert browser.complaints() == []


def test_a_snapshot_of_a_gpu_shows_segments_to_scale(browser: Browser, server: Server, ask: looking.Ask) -> None:
    file = "host_rank0.1.snapshot.pickle"

    browser.open(address(server, "segments", run="gpu", file=file), "segments")

    looking.see_segments(browser, ask, "gpu", file)
    browser.point(".block-map canvas", 0.2, 0.02)
    looking.has(browser, ".segments", "64.00 MiB", "allocated")
    browser.point_until(".block-map canvas", 0.2, 0.02, "document.querySelector('.detail .facts') !== null", click=True)
    looking.has(browser, ".detail", "64.00 MiB", "attention.py:7")
    browser.picture("tab-segments-gpu")
    assert browser.complaints() == []


def test_all_ranks_stand_side_by_side_and_the_odd_one_is_named(
    browser: Browser, server: Server, ask: looking.Ask
) -> None:
    browser.open(address(server, "ranks", run="ranks"), "ranks")

    looking.see_ranks(browser, ask, "ranks")
    looking.has(browser, "#odd", "2")
    assert [row.startswith("LEAK") for row in looking.column(browser, "ranks", 4)] == [False, False, True, False]


def test_several_runs_lie_over_each_other(browser: Browser, server: Server) -> None:
    browser.open(address(server, "live", run="leak", runs="leak\nranks"), "live")

    browser.until("document.querySelector('#live-plot')?.chart?.lines.length >= 5")
    names = browser.script("document.querySelector('#live-plot').chart.lines.map((one) => one.name)")
    assert {"leak · rank 0 · resident peak", "ranks · rank 2 · resident peak"} <= set(names)


def test_a_name_that_looks_like_html_stays_text(browser: Browser, server: Server) -> None:
    browser.open(address(server, "live", run=HOSTILE), "live")

    assert HOSTILE in browser.text("#pick-run, #pick-runs")
    browser.open(address(server, "overview", cards=HOSTILE), "overview")
    assert browser.texts(".run h2") == [HOSTILE]
    assert browser.script("document.querySelectorAll('main img').length") == 0
    assert browser.complaints() == []


def test_a_file_that_cannot_be_read_is_told_on_its_page(browser: Browser, server: Server) -> None:
    browser.open(address(server, "peak", run="no such run", file="nothing"), "peak")
    assert browser.script("document.querySelector('main').textContent.length") > 20

    browser.open(address(server, "compare", before="gpu", after="leak"), "compare")
    assert browser.text("main")
    # a status of 4xx is told by the browser itself on its console
    assert [line for line in browser.complaints() if "status of 4" not in line] == []


def test_the_page_can_be_used_soon(browser: Browser, server: Server) -> None:
    waited = []
    for _ in range(3):
        browser.open(address(server, "overview"), "overview")
        waited.append(browser.waited)

    # two seconds are allowed; the rest is for a machine that does other things as well
    assert min(waited) < 4


def test_dark_follows_tensorboard(browser: Browser, server: Server) -> None:
    browser.open(address(server, "timeline", run="leak"), "timeline")
    assert browser.script("document.documentElement.dataset.theme") == "light"

    browser.leave()
    browser.script("document.body.classList.add('dark-mode')")
    browser.enter()

    browser.until("document.documentElement.dataset.theme === 'dark'")
    assert browser.script("getComputedStyle(document.body).backgroundColor") == "rgb(48, 48, 48)"
    for view in SEEN:
        browser.go(view)
        browser.picture(f"dark-{view}")
    assert browser.complaints() == []
