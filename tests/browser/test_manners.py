"""Manners of the page: the history, what is missing, where results appear, colours, narrow windows and the keyboard."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.browser import looking
from tests.browser.driving import Browser
from tests.browser.test_interaction import DOWN, ENTER, ESCAPE, LEFT, LOW, RIGHT, TOP, hash_of
from tests.browser.test_tab import SEEN, address, ask, trace
from tests.tensorboard_server import Server

__all__ = ["ask", "trace"]
SHIFT, ALT, UP = "\ue008", "\ue00a", "\ue013"
DRAWN = "document.querySelector('main')?.dataset.drawn"


def back(browser: Browser, by: int = -1) -> None:
    """The browser's Back or Forward."""
    browser.leave()
    browser.script(f"history.go({by})")
    browser.enter()


def test_each_view_run_and_range_is_an_entry_in_the_history(browser: Browser, server: Server, trace: str) -> None:
    # given a view, another, another run, and a range in it
    browser.open(address(server, "overview"), "overview")
    browser.go("live")
    browser.go("timeline")
    browser.click("#pick-run")
    browser.click("[data-value='leak']")
    browser.until(
        "document.querySelector('#pick-run').textContent === 'leak' && !document.querySelector('[aria-busy]')"
    )
    looking.columns_of(browser)
    browser.drag(TOP, 0.2, 0.4)
    browser.until("document.querySelector('#brushed .tiles') !== null")
    link = f"{server.address}/{hash_of(browser)}"

    # when one goes back, then each is undone, one after the other
    back(browser)
    browser.until("document.querySelector('#brushed .tiles') === null && !document.querySelector('[aria-busy]')")
    assert browser.text("#pick-run") == "leak"
    back(browser)
    browser.until(f"{DRAWN} === 'timeline' && !/run=leak/.test(window.parent.location.hash)")
    back(browser)
    browser.until(f"{DRAWN} === 'live'")
    back(browser)
    browser.until(f"{DRAWN} === 'overview'")

    # and forward again, and from the link in a new page
    back(browser, 4)
    browser.until(f"{DRAWN} === 'timeline' && document.querySelector('#brushed .tiles') !== null")
    browser.open(link, "timeline")
    browser.until("document.querySelector('#brushed .tiles') !== null")
    assert browser.complaints() == []


def test_a_run_or_file_that_is_not_there_is_an_error(browser: Browser, server: Server) -> None:
    browser.open(address(server, "peak", run="gone"), "peak")
    looking.has(browser, "main [role=alert]", "Not found", "There is no run gone in this log folder")

    browser.open(address(server, "timeline", run="leak", file="gone.json"), "timeline")
    looking.has(browser, "main [role=alert]", "Run leak has no recording gone.json")

    browser.open(address(server, "live", runs="leak\ngone"), "live")
    looking.has(browser, "main [role=alert]", "There is no run gone")

    # and another can be chosen
    browser.click("#pick-runs")
    browser.click("[data-value='stable']")
    browser.press(ESCAPE)
    browser.until("document.querySelector('main [role=alert]') === null")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768)])
def test_what_is_clicked_is_shown_where_one_looks(
    browser: Browser, server: Server, trace: str, width: int, height: int
) -> None:
    def visible(css: str) -> bool:
        place = "document.querySelector(arguments[0]).getBoundingClientRect()"
        top, right = browser.script(f"[{place}.top, {place}.right]", css)
        return bool(0 <= top < browser.script("innerHeight") - 100 and 0 < right <= width)

    browser.size(width, height)
    browser.open(address(server, "timeline", run="leak", file=trace), "timeline")
    looking.columns_of(browser)

    browser.drag(TOP, 0.2, 0.4)
    browser.until("document.querySelector('#brushed .tiles') !== null")
    assert visible("#brushed .tiles")

    looking.click_a_band(browser, LOW)
    browser.until("document.querySelector('.detail .facts') !== null")
    assert visible(".detail .facts")
    browser.picture(f"docked-{width}")

    file = "host_rank0.1.snapshot.pickle"
    browser.open(address(server, "segments", run="gpu", file=file), "segments")
    browser.point_until(".block-map canvas", 0.2, 0.02, "document.querySelector('.detail .facts') !== null", click=True)
    assert visible(".detail .facts")
    browser.size()


def test_names_keep_the_room_in_a_narrow_window(browser: Browser, server: Server, trace: str) -> None:
    browser.size(390, 800)
    for view, table, column in (("operators", "operators", 1), ("peak", "peak-tensors", 2), ("ranks", "ranks", 1)):
        browser.open(
            address(
                server,
                view,
                run="ranks" if view == "ranks" else "leak",
                file="" if view == "ranks" else trace,
                part="tensors",
            ),
            view,
        )
        browser.until(f"document.querySelector('#{table} tbody tr[data-at]') !== null")
        cell = f"document.querySelector('#{table} th:nth-child({column})').getBoundingClientRect()"
        least = 60 if view == "ranks" else 150
        assert browser.script(f"Math.min({cell}.width, innerWidth - {cell}.left)") >= least, view
        assert browser.script("document.documentElement.scrollWidth <= innerWidth"), view
    browser.size()


def test_keys_brush_and_go_through_the_bands(browser: Browser, server: Server, ask: looking.Ask, trace: str) -> None:
    browser.open(address(server, "timeline", run="leak", file=trace), "timeline")
    looking.columns_of(browser)

    # Shift with an arrow begins a range, and moves its end; with Alt as well its beginning
    browser.script("document.querySelector('.frame canvas[tabindex]').focus()")
    browser.chord([SHIFT], RIGHT)
    browser.until("document.querySelector('#brushed .tiles') !== null")
    first = browser.text("#brushed h2")
    browser.chord([SHIFT], RIGHT)
    browser.until(f"document.querySelector('#brushed h2').textContent !== {json.dumps(first)}")
    second = browser.text("#brushed h2")
    assert first.partition(" to ")[0] == second.partition(" to ")[0]
    browser.chord([SHIFT, ALT], LEFT)
    browser.until(f"document.querySelector('#brushed h2').textContent !== {json.dumps(second)}")
    browser.press(ESCAPE)
    browser.until("document.querySelector('#brushed .tiles') === null")

    # the bands by size, and Enter opens one
    browser.script(f"document.querySelector({json.dumps(LOW)}).focus()")
    browser.press(DOWN, DOWN, UP, ENTER)
    browser.until("document.querySelector('.detail .facts') !== null")
    answer = ask("timeline", run="leak", file=trace, largest="1000", points="2000")
    looking.has(browser, ".detail .facts", looking.format_bytes(max(answer["allocations"]["bands"]["bytes"])))
    assert browser.complaints() == []


def test_an_export_has_all_rows(browser: Browser, server: Server, ask: looking.Ask, trace: str, tmp_path: Path) -> None:
    # given a range with more allocations than the page shows of it
    browser.save_to(tmp_path)
    first, last = ask("timeline", run="leak", file=trace)["axis"]["extent"]
    browser.open(address(server, "timeline", run="leak", file=trace, b0=str(first), b1=str(last)), "timeline")
    browser.until("document.querySelector('#range-freed') !== null")
    count = ask("range", run="leak", file=trace)["freed"]["count"]
    looking.has(browser, "#range-freed", "the first 200 shown")

    browser.script("document.querySelector('[data-sum=freed]').open = true")
    browser.click("#range-freed .table-bar button")

    file = tmp_path / "freed-in-range.csv"
    browser.wait_for(file.is_file)
    assert len(list(csv.DictReader(file.read_text().splitlines()))) == count > 200


_CONTRASTS = """\
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const over = ([r, g, b, a = 1], ground) => [r, g, b].map((one, at) => one * a + ground[at] * (1 - a));
  const share = (one) => ((one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const bright = ([r, g, b]) => 0.2126 * share(r) + 0.7152 * share(g) + 0.0722 * share(b);
  const groundOf = (node) => {
    if (!node) return [255, 255, 255];
    const style = getComputedStyle(node).backgroundColor.replace(/color\\(srgb ([^)]*)\\)/, (_, all) =>
      all.split(/[ /]+/).map((one, at) => (at < 3 ? one * 255 : one)).join(" "));
    const own = parse(style);
    return own[3] === 0 ? groundOf(node.parentElement) : over(own, groundOf(node.parentElement));
  };
  const low = new Set();
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest('svg')) continue;
    const ground = groundOf(node);
    const [one, other] = [bright(over(parse(getComputedStyle(node).color), ground)), bright(ground)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.add(`${node.tagName}.${node.className} ${node.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return [...low];
})()
"""


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_can_be_read(browser: Browser, server: Server, trace: str, mode: str) -> None:
    browser.open(address(server, "overview", run="leak", file=trace), "overview")
    assert browser.script("document.documentElement.lang") == "en"
    browser.leave()
    browser.script(f"document.body.classList.toggle('dark-mode', {json.dumps(mode == 'dark')})")
    browser.enter()
    browser.until(f"document.documentElement.dataset.theme === {mode!r}")
    pale = {}
    for view in SEEN:
        browser.go(view)
        pale[view] = browser.script(_CONTRASTS)
        assert not [
            text
            for text in browser.texts("main td, main dd, main b, main p")
            if re.search(r"(^|\s)-0([^\d.]|\.0+\b|$)", text)
        ]
    assert not any(pale.values()), pale


def test_long_work_shows_how_far_it_is_and_can_be_cancelled(
    browser: Browser, server: Server, ask: looking.Ask, logdir: Path, request: pytest.FixtureRequest
) -> None:
    # given a trace that takes a while
    sizes = '"Total Allocated":%d,"Bytes":%d,"Addr":%d,"Device Id":-1,"Device Type":0'
    event = '{"ph":"i","name":"[memory]","ts":%d,"args":{' + sizes + "}}"
    events = ",\n  ".join(event % (at, 2000 - at % 2, 512 - 1024 * (at % 2), at // 2 + 1) for at in range(1_000_000))
    (logdir / "long").mkdir()
    request.addfinalizer(lambda: shutil.rmtree(logdir / "long"))  # also where the test fails
    (logdir / "long/w.1.pt.trace.json").write_text(f'{{"traceEvents": [\n  {events}\n]}}')
    browser.wait_for(lambda: any(one["run"] == "long" for one in ask("index")["runs"]))

    # when it is opened, then its name, a share and a button are there, whatever was shown before
    browser.open(address(server, "overview"), "overview")
    browser.complaints()
    browser.leave()
    browser.script(f"location.hash = {json.dumps(address(server, 'timeline', run='long').partition('#')[2])}")
    browser.enter()
    browser.until("document.querySelector('.working progress') !== null")
    looking.has(browser, ".working", "w.1.pt.trace.json")
    browser.picture("working")
    browser.script("document.querySelector('.working button').click()")

    # and Cancel stops it on the server too
    browser.until("document.querySelector('main [role=alert]') !== null")
    looking.has(browser, "main [role=alert]", "was cancelled")
    assert ask("progress") == {"work": []}


def test_only_the_programs_own_frames_are_bold(browser: Browser, server: Server, trace: str) -> None:
    browser.open(address(server, "peak", run="leak", file=trace, part="stacks"), "peak")

    rows = "[...document.querySelectorAll('#peak-stacks tbody tr[data-at]')]"
    browser.script(f"{rows}.find((row) => row.textContent.includes('training.py')).click()")
    browser.until("document.querySelector('.detail .frames') !== null")

    assert browser.texts(".detail .frames .own")
    assert all("demo/training.py" in text for text in browser.texts(".detail .frames .own"))
