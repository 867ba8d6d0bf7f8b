"""The Live view while a run is written: what is new appears by itself, and what the user has set stays."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbmem.model.files import MONITOR_LOG
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import LogRecord, to_line
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import RowBuilder
from tests.browser import looking
from tests.browser.driving import TAB, Browser
from tests.browser.test_tab import PLUGIN, address
from tests.tensorboard_server import Server

GIB, MIB = 1 << 30, 1 << 20
CAPACITY = 80 * GIB
IDENTITY = "from tbmem.sources.runs.process_identity import this_process as own; import json"
PROGRAM = f"{IDENTITY}; print(json.dumps(own()), flush=True); input()"
LEVELS, PEAKS, FORECAST = (
    f"document.querySelector('#{one}')?.chart" for one in ("live-levels", "live-plot", "live-forecast-plot")
)


class Training:
    """A run that is written by hand, of a process that lives until ``kill``.

    Args:
        folder: The run's folder.
        rate: Growth of the level in bytes per step.
    """

    def __init__(self, folder: Path, rate: int = 0) -> None:
        command = [sys.executable, "-c", PROGRAM]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._log, self._rate, self._step = folder / MONITOR_LOG, rate, 0
        self._log.parent.mkdir(parents=True)
        process = json.loads(self._process.stdout.readline())
        self.write({"type": "header", "schema": 1, "started": 1000.0, "rank": 0, "process": process})

    def write(self, *records: LogRecord) -> None:
        with self._log.open("a") as file:
            file.writelines(to_line(record) + "\n" for record in records)

    def steps(self, count: int, every: int = 1, spike: int = 0) -> None:
        """Go on for some steps, of which one may reach a peak of 63 GiB."""
        builder, rows = RowBuilder(every), []
        for step in range(self._step + 1, self._step + count + 1):
            grown = step * self._rate
            sample = MemorySample(
                step=step,
                time=1000 + step / 1000,
                device="cuda:0",
                allocated=10 * GIB + grown,
                reserved=32 * GIB,
                peak_allocated=63 * GIB if step == spike else 30 * GIB + grown,
                device_used=47 * GIB,
                device_total=CAPACITY,
            )
            rows += builder.add([sample])
        self.write(*rows)
        self._step += count

    def find(self, kind: FindingKind, step: int, **evidence: Any) -> None:
        finding = {"kind": kind, "device": "cuda:0", "message": f"it is a {kind.value}", "evidence": evidence}
        self.write(Finding(severity=Severity.CRITICAL, first_step=step, last_step=step, **finding))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def training(logdir: Path, browser: Browser) -> Iterator[Training]:
    """A run that grows by 256 KiB a step: by one per cent in 400 steps."""
    running = Training(logdir / "now", 256 << 10)
    yield running
    running.kill()
    browser.close_page()  # a page that goes on asking would not find the run
    shutil.rmtree(logdir / "now")


def open_live(browser: Browser, server: Server, **state: str) -> None:
    browser.rest(1.1)  # folders are searched once a second: what a test before has left is not shown
    browser.open(address(server, "live", run="now", **{"poll": "200", **state}), "live")


def drawn_to(browser: Browser, step: int) -> None:
    browser.until(f"{PEAKS}?.lines[0].x.at(-1) === {step}", 30)


def questions(browser: Browser) -> list[str]:
    return [url for url in browser.asked() if PLUGIN in url]


def test_rows_and_the_end_appear_without_a_click(browser: Browser, server: Server, training: Training) -> None:
    # given a run that has only just begun
    open_live(browser, server)
    looking.has(browser, ".empty", "No step has been logged yet")

    # when steps come
    training.steps(20)
    browser.until("document.querySelector('#live-plot') !== null", 30)
    drawn_to(browser, 20)
    looking.has(browser, "#live-status", "running")
    questions(browser)
    training.steps(5)

    # then they are drawn, and only they were asked for
    drawn_to(browser, 25)
    looking.has(browser, ".latest", "step 25", "25 rows")
    asked = questions(browser)
    assert asked
    assert all("/live?after=" in url for url in asked), asked

    # and with the end nothing is asked any more
    training.write({"type": "end", "time": 1001.0, "steps": 25, "verdicts": []})
    browser.until("document.querySelector('#live-status').textContent === 'ended in order'", 30)
    browser.rest(0.5)
    questions(browser)
    browser.rest(1.5)
    assert questions(browser) == []
    assert browser.complaints() == []


def test_a_long_log_is_drawn_as_far_as_it_has_been_read(browser: Browser, server: Server, training: Training) -> None:
    # given a log of several blocks, whose run has ended
    training.steps(12_000)
    training.write({"type": "end", "time": 1012.0, "steps": 12_000, "verdicts": []})

    # when the server reads one block for each answer
    open_live(browser, server, within="0.000001")

    # then one after another is asked for and drawn, up to the end
    drawn_to(browser, 12_000)
    looking.has(browser, "#live-status", "ended in order")
    looking.has(browser, ".latest", "step 12 000", "12 000 rows")
    asked = [url for url in questions(browser) if "/live?" in url]
    assert sum("within=" in url for url in asked) > 2
    assert browser.complaints() == []


def test_the_cards_of_a_long_log_go_on_by_themselves(browser: Browser, server: Server, training: Training) -> None:
    training.steps(12_000)
    training.write({"type": "end", "time": 1012.0, "steps": 12_000, "verdicts": []})

    browser.rest(1.1)  # as in open_live
    browser.open(address(server, "overview", cards="now", run="now", within="0.000001"), "overview")

    browser.until("document.querySelector('.next') !== null", 30)
    looking.has(browser, ".run-head", "ended in order", "step 12 000")
    assert "reading the log" not in browser.text(".run-head")
    assert sum("/overview?" in url for url in questions(browser)) > 2
    assert browser.complaints() == []


def test_a_process_that_is_killed_is_told(browser: Browser, server: Server, training: Training) -> None:
    training.steps(20)
    open_live(browser, server)
    looking.has(browser, "#live-status", "running")

    training.kill()

    browser.until("document.querySelector('#live-status').textContent.includes('killed or crashed')", 30)
    browser.picture("live-died")


def test_zoom_and_hidden_curves_stay(browser: Browser, server: Server, training: Training) -> None:
    # given a range and amounts that were dragged, a curve that is hidden, evidence that is open
    training.steps(100)
    training.find(FindingKind.LEVEL_SHIFT, 50)
    open_live(browser, server)
    browser.drag("#live-plot canvas[tabindex]", 0.3, 0.6)
    browser.until("document.querySelector('main [data-refined]') !== null")
    browser.click("#live-plot .line-key")
    browser.click(".finding-row")
    frame = f"JSON.stringify({PEAKS}.range)"
    before = browser.script(frame)

    # when the run goes on
    training.steps(50)
    browser.until(f"{PEAKS}.x.extent[1] === 150", 30)

    # then all of it is as it was
    assert browser.script(frame) == before
    assert browser.script("document.querySelector('#live-plot .line-key').getAttribute('aria-pressed')") == "false"
    looking.has(browser, "#live-evidence", "LEVEL SHIFT")
    browser.click("#live-reset")
    drawn_to(browser, 150)
    assert browser.script("document.querySelector('#live-plot .line-key').getAttribute('aria-pressed')") == "false"


def test_nothing_is_asked_while_the_page_is_hidden_or_another_view_is_shown(
    browser: Browser, server: Server, training: Training
) -> None:
    training.steps(20)
    open_live(browser, server)

    browser.leave()
    browser.script("location.hash = '#timeseries'")
    browser.until(f"getComputedStyle(document.querySelector({json.dumps(TAB)})).visibility === 'hidden'")
    browser.rest(1)
    questions(browser)
    training.steps(20)
    browser.rest(1.5)
    assert questions(browser) == []

    # but on coming back
    browser.script("location.hash = '#tbmem'")
    browser.enter()
    drawn_to(browser, 40)

    # and not from another view
    browser.go("overview")
    browser.rest(0.5)
    questions(browser)
    browser.rest(1.5)
    assert questions(browser) == []


def test_questions_become_fewer_while_nothing_comes(browser: Browser, server: Server, training: Training) -> None:
    training.steps(20)
    open_live(browser, server, poll="100")
    questions(browser)

    browser.rest(5)

    # at 0.1, 0.25, 0.48, 0.81, 1.3, 2.1, 3.2 and 4.9 seconds, later where the machine is slow
    assert 2 <= len(questions(browser)) <= 9


def test_a_forecast_is_a_cone_up_to_the_capacity(browser: Browser, server: Server, training: Training) -> None:
    training.steps(100)
    open_live(browser, server)
    assert browser.script("document.querySelector('#live-forecast').textContent") == ""

    # when a leak is found while the page is open
    evidence = {"bytes_per_step": 256 << 10, "steps_left": 1000, "steps_left_low": 800, "steps_left_high": 1500}
    training.find(FindingKind.LEAK, 100, channel="allocated", seconds_left=1.0, **evidence)
    browser.until(f"{FORECAST}?.cones.length === 1", 30)

    (cone,) = browser.script(f"{FORECAST}.cones")
    assert (cone["x"], cone["y"]) == (100, 30 * GIB + 100 * (256 << 10))
    assert (cone["low"], cone["at"], cone["high"], cone["limit"]) == (900, 1100, 1600, CAPACITY)
    assert browser.script(f"{FORECAST}.levels[0].y") == CAPACITY
    looking.has(browser, "#live-forecast", "80.00 GiB", "step ~1 100 (900 to 1 600), 1.0 s after the last row")
    browser.picture("live-forecast")


def test_a_leak_of_one_per_cent_fills_the_axis(browser: Browser, server: Server, training: Training) -> None:
    training.steps(400)
    open_live(browser, server)

    # the program's own memory, an axis that its data fill, the capacity named above it
    assert browser.script(f"{LEVELS}.lines.map((one) => one.name)") == ["allocated"]
    assert browser.script(f"{PEAKS}.lines.map((one) => one.name)") == ["peak", "reserved"]
    top, bottom = browser.script(f"[{LEVELS}.top, {LEVELS}.bottom]")
    assert 0.4 < 100 * MIB / (top - bottom) < 1
    assert browser.script(f"{LEVELS}.levels[0].text") == "capacity 80.00 GiB"

    # what others use is drawn on demand
    browser.script("[...document.querySelectorAll('.tick')].at(-1).querySelector('input').click()")
    browser.until(f"{PEAKS}?.lines.length === 3")
    assert "all processes" in browser.script(f"{PEAKS}.lines[2].name")


def test_spikes_and_out_of_memory_lie_where_they_happened(browser: Browser, server: Server, training: Training) -> None:
    # given rows of ten steps
    training.steps(400, every=10, spike=137)
    training.find(FindingKind.SPIKE, 137, channel="peak")
    training.find(FindingKind.OOM, 403, pieces={"active": 76 * GIB, "reserved": 77 * GIB})
    open_live(browser, server)

    marks = {mark["symbol"]: mark for mark in browser.script(f"{PEAKS}.marks")}

    assert (marks["diamond"]["x"], marks["diamond"]["y"]) == (137, 63 * GIB)
    assert (marks["cross"]["x"], marks["cross"]["y"]) == (403, 76 * GIB)
    at = browser.script(f"{PEAKS}.lines[0].x.indexOf(137)")
    assert browser.script(f"{PEAKS}.lines[0].y[{at}]") == 63 * GIB
    assert re.match(r"out of memory at step 403", marks["cross"]["text"])
    browser.picture("live-spike")
