"""What a user does in the Memory tab with mouse and keyboard, and what the page then shows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tbmem.sources.runs.process_identity import this_process
from tests.browser import looking
from tests.browser.conftest import copy_log
from tests.browser.driving import TAB, Browser
from tests.browser.test_tab import PLUGIN, address, ask, trace
from tests.tensorboard_server import Server

__all__ = ["ask", "trace"]
TOP, LOW = ".frame canvas[tabindex]", "section:nth-of-type(2) .frame canvas[tabindex]"
RELOAD = "app-header-reload button"
ENTER, RIGHT, LEFT, DOWN, ESCAPE = "\ue007", "\ue014", "\ue012", "\ue015", "\ue00c"


def hash_of(browser: Browser) -> str:
    """The address that the user sees."""
    browser.leave()
    found = str(browser.script("location.hash"))
    browser.enter()
    return found


def test_a_band_tells_what_it_is_and_opens_its_stack(browser: Browser, server: Server, trace: str) -> None:
    browser.open(address(server, "timeline", run="leak", file=trace), "timeline")

    browser.point(LOW, 0.15, 0.6)
    browser.until("!document.querySelector('.tip').hidden")

    browser.point(LOW, 0.15, 0.6, click=True)
    browser.until("document.querySelector('.detail .frames') !== null")
    # read now: until the pointer rests it names bands that the pointer passed on its way
    tip = browser.text(".tip")
    assert re.match(r"[\d.]+ [KM]iB\n", tip)
    assert "Activation" in tip
    looking.has(browser, ".detail", tip.partition("\n")[0], "Activation", "training.py")
    browser.picture("detail")
    assert browser.complaints() == []


def test_a_brushed_range_is_summed_and_narrows_the_operators(
    browser: Browser, server: Server, ask: looking.Ask, trace: str
) -> None:
    browser.open(address(server, "timeline", run="leak", file=trace), "timeline")

    browser.drag(TOP, 0.2, 0.4)
    browser.until("document.querySelector('#brushed .tiles') !== null")

    begin, end = re.findall(r"p\.tbmem\.b[01]=([\d.]+)", hash_of(browser))
    asked = {"run": "leak", "file": trace, "axis": "time", "from": begin, "to": end}
    answer = ask("range", **asked)
    for part in ("allocated", "freed", "alive", "throughout"):
        looking.has(browser, "#brushed .tiles", looking.format_bytes(answer[part]["bytes"]))
    browser.picture("brushed")

    browser.click("#brush-operators")
    browser.until("document.querySelector('#operators-range') !== null")
    columns = ask("operators", **asked)["columns"]
    assert looking.column(browser, "operators", 8)[0] == looking.format_bytes(max(columns["self_allocated"]))

    browser.click("#operators-whole")
    browser.until("document.querySelector('#operators-range') === null")
    assert browser.complaints() == []


def test_zoom_asks_the_server_for_finer_points_and_stands_in_the_address(
    browser: Browser, server: Server, trace: str
) -> None:
    browser.open(address(server, "timeline", run="leak", file=trace), "timeline")

    browser.click("#zoom-in")
    browser.until("document.querySelector('.timeline').dataset.refined === '1'")
    assert "p.tbmem.t0=" in hash_of(browser)

    # the keyboard does the same
    browser.script("document.querySelector('.frame canvas[tabindex]').focus()")
    browser.press("+", RIGHT, "0")
    browser.until("document.querySelector('.timeline').dataset.refined >= '2'")
    assert "p.tbmem.t0=" not in hash_of(browser)


def test_the_detail_slider_shows_more(browser: Browser, server: Server, trace: str) -> None:
    browser.open(address(server, "timeline", run="leak", file=trace, largest="50"), "timeline")
    looking.has(browser, "#bands-shown", "50 of")

    browser.script("document.querySelector('#detail-slider').focus()")
    browser.press(RIGHT)

    browser.until("document.querySelector('#bands-shown').textContent.startsWith('100 of')")


def test_live_zoom_and_evidence(browser: Browser, server: Server) -> None:
    browser.open(address(server, "live", run="leak"), "live")
    browser.until("document.querySelector('#live-plot')?.chart?.lines.length > 0")

    browser.drag("#live-plot canvas[tabindex]", 0.3, 0.7)
    browser.until("document.querySelector('#live-plot').chart.range[0] > 10")
    assert "p.tbmem.from=" in hash_of(browser)
    browser.until("document.querySelector('#live-host').chart.range[0] > 10")

    browser.click(".finding-row")
    looking.has(browser, "#live-evidence", "LEAK", "evidence", "self.history.append(scores)")
    browser.picture("evidence")
    assert browser.complaints() == []


def test_a_line_chart_tells_its_values_and_hides_a_curve(browser: Browser, server: Server) -> None:
    browser.open(address(server, "live", run="leak"), "live")

    browser.point("#live-plot canvas[tabindex]", 0.5, 0.5)
    browser.until("document.querySelector('#live-plot .tip:not([hidden])') !== null")
    looking.has(browser, "#live-plot .tip", "step: ", "reserved", "resident peak")

    browser.click("#live-plot .line-key")
    browser.point("#live-plot canvas[tabindex]", 0.52, 0.5)
    browser.until("!document.querySelector('#live-plot .tip').textContent.includes('resident peak')")
    looking.has(browser, "#live-plot .tip", "step: ", "reserved")
    assert browser.complaints() == []


def test_a_link_shows_the_same_again_and_coming_back_too(browser: Browser, server: Server) -> None:
    browser.open(address(server, "overview"), "overview")
    browser.go("peak")
    browser.click("#part-merged")
    link = f"{server.address}/{hash_of(browser)}"

    # a new page from the link
    browser.open(link, "peak")
    assert browser.script("document.querySelector('#part-merged').getAttribute('aria-selected')") == "true"

    # another tab of TensorBoard, and back
    browser.leave()
    browser.script("location.hash = '#timeseries'")
    browser.until(f"getComputedStyle(document.querySelector({json.dumps(TAB)})).visibility === 'hidden'")
    browser.script("location.hash = '#tbmem'")
    browser.until("location.hash.includes('p.tbmem.view=peak')")
    browser.enter()
    assert browser.script("document.querySelector('main').dataset.drawn") == "peak"


def test_keys_are_enough(browser: Browser, server: Server, trace: str) -> None:
    browser.open(address(server, "overview", run="leak", file=trace), "overview")

    browser.script("document.querySelector('#tab-overview').focus()")
    browser.press(RIGHT)
    browser.until("document.querySelector('main').dataset.drawn === 'live'")
    assert browser.active() == "tab-live"
    assert browser.script("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press(RIGHT, RIGHT)
    browser.until("document.querySelector('main').dataset.drawn === 'peak'")

    # rows of a table
    browser.click("#part-tensors")
    browser.until("document.querySelector('#peak-tensors tbody tr[data-at]') !== null")
    browser.script("document.querySelector('#peak-tensors tr[data-at]').focus()")
    browser.press(DOWN, ENTER)
    browser.until("document.querySelector('.detail .facts') !== null")

    # the modules' tree
    browser.click("#part-tree")
    rows = "document.querySelectorAll('#peak-tree tbody tr').length"
    before = browser.script(rows)
    browser.script("document.querySelector('#peak-tree tbody tr').focus()")
    browser.press(LEFT)
    browser.until(f"{rows} === 1")
    browser.press(RIGHT)
    browser.until(f"{rows} === {before}")

    # the list of runs
    browser.script("document.querySelector('#pick-run').focus()")
    browser.press(ENTER)
    browser.until("document.querySelector('.picker-list:not([hidden])') !== null")
    browser.press(*"stable", DOWN, ENTER)
    browser.until("document.querySelector('#pick-run').textContent === 'stable'")


def test_tables_filter_sort_and_export(
    browser: Browser, server: Server, ask: looking.Ask, trace: str, tmp_path: Path
) -> None:
    browser.save_to(tmp_path)
    columns = ask("operators", run="leak", file=trace)["columns"]
    browser.open(address(server, "operators", run="leak", file=trace), "operators")

    browser.type("#operators-search", "gelu")
    fitting = [name for name in columns["name"] if "gelu" in name.lower()]
    browser.until(f"document.querySelectorAll('#operators tbody tr[data-at]').length === {len(fitting)}")
    browser.click("#operators th:first-child button")
    assert looking.column(browser, "operators", 1) == sorted(fitting, key=str.lower)

    browser.click("#operators .table-bar button")
    file = tmp_path / "operators.csv"
    browser.wait_for(file.is_file)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    by_name = dict(zip(columns["name"], columns["self_allocated"], strict=True))
    assert {row["name"]: int(row["self_allocated"]) for row in rows} == {name: by_name[name] for name in fitting}


def test_a_table_is_filtered_by_size(browser: Browser, server: Server, ask: looking.Ask, trace: str) -> None:
    columns = ask("operators", run="leak", file=trace)["columns"]
    browser.open(address(server, "operators", run="leak", file=trace), "operators")

    browser.type("#operators-search", "aten:: >64KiB <4MiB")

    pairs = zip(columns["name"], columns["size_increase"], strict=True)
    fitting = [name for name, size in pairs if name.startswith("aten::") and 64 << 10 < size < 4 << 20]
    assert fitting
    browser.until(f"document.querySelectorAll('#operators tbody tr[data-at]').length === {len(fitting)}")
    assert sorted(looking.column(browser, "operators", 1)) == sorted(fitting)


def test_a_run_that_is_being_written_is_followed(browser: Browser, server: Server, logdir: Path) -> None:
    # given a run that is at its beginning, of one that is long enough for four rows on any machine
    copy_log(logdir / "leak", logdir / "growing", 0)
    log = logdir / "growing/plugins/tbmem/monitor.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    samples = [line for line in lines if '"samples"' in line]
    alive = json.dumps({**json.loads(lines[0]), "process": this_process()}) + "\n"
    log.write_text("".join([alive, *samples[:2]]))
    browser.open(address(server, "live", run="growing"), "live")
    looking.has(browser, "#live-status", "running")
    looking.has(browser, ".latest", f"step {json.loads(samples[1])['step']}")

    # when it goes on, and TensorBoard's own button is pressed
    with log.open("a") as more:
        more.writelines(samples[2:3])
    browser.rest(1.2)  # the server looks at its folder once a second
    browser.leave()
    browser.click(RELOAD)
    browser.enter()

    # then the page shows it
    step = f"step {json.loads(samples[2])['step']}:"
    browser.until(f"document.querySelector('.latest')?.textContent.includes({json.dumps(step)})")

    # and while another tab is shown, nothing is asked
    browser.leave()
    browser.script("location.hash = '#timeseries'")
    browser.until(f"getComputedStyle(document.querySelector({json.dumps(TAB)})).visibility === 'hidden'")
    browser.asked()
    with log.open("a") as more:
        more.writelines(samples[3:4])
    browser.click(RELOAD)
    browser.rest(2)
    assert not [url for url in browser.asked() if PLUGIN in url]

    # but on coming back
    browser.script("location.hash = '#tbmem'")
    browser.enter()
    step = f"step {json.loads(samples[3])['step']}:"
    browser.until(f"document.querySelector('.latest')?.textContent.includes({json.dumps(step)})")
    assert browser.complaints() == []


@pytest.fixture(scope="module", autouse=True)
def _no_run_is_left_behind(logdir: Path) -> Any:
    yield
    import shutil

    shutil.rmtree(logdir / "growing", ignore_errors=True)
