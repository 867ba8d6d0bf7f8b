"""The Overview of many runs: problems on top, filtered and sorted; an out-of-memory error and a leak as stories."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.units import GIB, MIB
from tests.analysis.allocator.test_what_if import in_pieces
from tests.browser import looking
from tests.browser.driving import Browser
from tests.offline.queries.folder import LEAK, Folder
from tests.present.views.test_stories import OOM
from tests.tensorboard_server import Server

STORY = {
    **LEAK,
    "kind": "oom",
    "first_step": 8,
    "evidence": {**OOM, "requested_bytes": 70 * MIB, "free_bytes": 0},
}
LEAKING = {
    **LEAK,
    "evidence": {**LEAK["evidence"], "holder": "list 'losses'", "bytes_per_step": 2 * MIB, "steps_left": 90},
}  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Fifty runs, of which one leaks and one ran out of memory; a recording without a run, and a broken one."""
    folder = Folder(tmp_path_factory.mktemp("many") / "runs")
    for number in range(48):
        folder.log(f"fine{number:02}", steps=40, peak=GIB + number * MIB)
    folder.log("leaks", steps=40, finding=LEAKING)
    path = folder.log("dies", steps=40, peak=4 * GIB - 10, end=False, finding=STORY)
    end = {
        "type": "end",
        "time": 1050.0,
        "steps": 40,
        "verdicts": [],
        "exception": "OutOfMemoryError",
        "out_of_memory": True,
    }
    path.write_text(path.read_text() + json.dumps(end) + "\n")
    snapshot = pickle.dumps(in_pieces(AllocatorSettings(), 70 * MIB), protocol=4)
    (folder.path / "dies/x.oom.snapshot.pickle").write_bytes(snapshot)
    (folder.path / "alone").mkdir()
    (folder.path / "alone/y.snapshot.pickle").write_bytes(snapshot)
    damaged = folder.path / "damaged/plugins/tbmem/monitor.jsonl"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\0" * 100)
    running = Server(folder.path, tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.close()


def _open(browser: Browser, server: Server, more: str = "") -> None:
    browser.complaints()
    browser.open(f"{server.address}/#tbmem&p.tbmem.view=overview{more}", "overview")


def _choose(browser: Browser, css: str, value: str) -> None:
    browser.script(
        "(() => { const list = document.getElementById(arguments[0]); list.value = arguments[1];"
        " list.dispatchEvent(new Event('change')); })()".replace("arguments[0]", json.dumps(css)).replace(
            "arguments[1]", json.dumps(value)
        )
    )


def test_fifty_runs_are_a_table_with_problems_on_top(browser: Browser, many: Server) -> None:
    _open(browser, many)

    runs = looking.column(browser, "runs", 1)
    assert runs[:2] == ["dies", "leaks"]
    assert browser.script("document.querySelectorAll('.run').length") == 0
    looking.has(browser, "#runs tbody tr", "OOM", "out of memory", "4.00 GiB")
    # what has no run, and what cannot be read, have a line each
    assert len(browser.texts(".files.alone li")) == 1
    assert "alone/y.snapshot.pickle" in browser.text(".files.alone")
    assert browser.complaints() == []


def test_the_table_is_sorted_and_filtered(browser: Browser, many: Server) -> None:
    _open(browser, many)

    _choose(browser, "o.verdict", "problems")
    browser.until("document.querySelectorAll('#runs tbody tr[data-at]').length === 2")
    _choose(browser, "o.verdict", "")
    _choose(browser, "o.room", "tight")
    browser.until("document.querySelectorAll('#runs tbody tr[data-at]').length === 1")
    _choose(browser, "o.room", "")
    browser.until("document.querySelectorAll('#runs tbody tr[data-at]').length > 2")
    browser.click("#runs th:nth-child(5) button")
    assert looking.column(browser, "runs", 1)[:2] == ["dies", "fine47"]


def test_a_run_that_ran_out_of_memory_tells_why_and_what_would_have_fitted(browser: Browser, many: Server) -> None:
    _open(browser, many, "&p.tbmem.cards=dies")

    browser.until("document.querySelector('.story .changes') !== null")
    looking.has(browser, ".story.oom", "70.00 MiB on GPU 0 at train.py:7 in train()", "largest gap 1.00 MiB")
    looking.has(browser, ".story.oom", "without it the request would have fitted")
    assert len(browser.texts(".story.oom .holders li")) == 3
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in browser.texts(".story .changes li")[0]
    looking.has(browser, ".story .changes li", "fits")
    assert browser.complaints() == []


def test_a_leak_tells_line_holder_rate_and_cure(browser: Browser, many: Server) -> None:
    _open(browser, many)

    browser.click("#runs tbody tr:nth-child(2)")
    browser.until("document.querySelector('.story.leak') !== null")
    looking.has(browser, ".story.leak", "train.py:41 losses.append(loss)", "list 'losses'", "+2.00 MiB per step")
    looking.has(browser, ".story.leak", "about 90 steps", "use .item()")
    # and back to all
    browser.click(".overview .bar button")
    browser.until("document.querySelector('#runs') !== null")
