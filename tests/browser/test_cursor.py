"""The cursor of the Timeline: the allocator at any event, the docked stack, the minimap, keys."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser import looking
from tests.browser.driving import Browser
from tests.browser.test_interaction import LOW, TOP, hash_of
from tests.browser.test_tab import address, ask
from tests.offline.snapshots import snapshot
from tests.tensorboard_server import Server

__all__ = ["ask"]
FILE = "host_rank0.1.snapshot.pickle"
STACK = "document.querySelector('.dock .frames')?.textContent"


@pytest.fixture(scope="module")
def server(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A TensorBoard with a real snapshot of a GPU."""
    folder = tmp_path_factory.mktemp("snapshots")
    (folder / "gpu").mkdir()
    shutil.copy(corpus / "snapshots/ZidongLiu__memory__2f29ac4.pickle", folder / "gpu" / FILE)
    (folder / "oom").mkdir()
    failed = {"action": "oom", "addr": 1 << 30, "size": 80 << 20, "stream": 0, "time_us": 1_000_100, "frames": []}
    recorded = snapshot([1000, 5000])
    recorded["device_traces"][0].append(failed)
    (folder / "oom" / FILE).write_bytes(pickle.dumps(recorded))
    running = Server(folder, tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.close()


@pytest.fixture
def page(browser: Browser, server: Server) -> Browser:
    browser.complaints()
    browser.open(address(server, "timeline", run="gpu", file=FILE), "timeline")
    browser.until("document.querySelector('#allocator')?.dataset.event")
    return browser


def event(browser: Browser) -> int:
    return int(browser.script("document.querySelector('#allocator').dataset.event"))


def test_blocks_follow_the_pointer_and_a_click_holds_the_moment(page: Browser, ask: looking.Ask) -> None:
    last = event(page)

    page.point(TOP, 0.3, 0.5)
    page.until(f"document.querySelector('#allocator').dataset.event !== '{last}'")
    page.point(TOP, 0.6, 0.5, click=True)
    page.until("document.querySelector('#cursor-free').hidden === false")
    page.rest(0.5)
    held = event(page)
    page.point(TOP, 0.2, 0.5)
    page.rest(0.5)

    assert event(page) == held != last
    answer = ask("state", run="gpu", file=FILE, axis="event", at=str(held), size=str(512 << 20))
    looking.has(
        page, "#cursor-figures", looking.format_bytes(answer["reserved"]), looking.format_bytes(answer["active"])
    )
    looking.has(page, "#fit-verdict", answer["fit"]["verdict"].upper(), answer["fit"]["sentence"])
    assert "p.tbmem.c0=" in hash_of(page)
    page.click("#cursor-free")
    assert "p.tbmem.c0=" not in hash_of(page)
    page.picture("cursor")
    assert page.complaints() == []


def test_another_size_is_tried_at_the_cursor(page: Browser) -> None:
    page.script("document.querySelector('#fit-size').value = ''")
    page.type("#fit-size", "1")

    page.until("document.querySelector('#fit-verdict').textContent.includes('A free block of')")


def test_the_request_that_failed_is_tried_at_first(browser: Browser, server: Server) -> None:
    browser.open(address(server, "timeline", run="oom", file=FILE), "timeline")
    browser.until("document.querySelector('#fit-size')?.value === '80'")
    looking.has(browser, "#fit-verdict", "80.00 MiB")


def test_a_stack_is_docked_on_hover_and_kept_by_a_click_without_scrolling(page: Browser) -> None:
    page.point(LOW, 0.5, 0.8)
    page.until(f"{STACK}?.length > 0")
    place = page.script("window.scrollY")

    page.point(LOW, 0.5, 0.8, click=True)
    page.until("document.querySelector('.dock .close') !== null")
    kept = page.script(STACK)
    page.point(LOW, 0.2, 0.8)
    page.rest(0.6)

    assert page.script("window.scrollY") == place
    assert page.script(STACK) == kept
    page.click(".dock .close")
    page.until("document.querySelector('.dock .frames') === null")


def test_keys_and_the_minimap_choose_what_is_shown(page: Browser) -> None:
    page.point(TOP, 0.5, 0.5, click=True)
    page.press("w")
    page.until("true")
    assert "p.tbmem.t0=" in hash_of(page)
    before = hash_of(page)
    page.press("d")
    assert hash_of(page) != before
    page.press("0")
    assert "p.tbmem.t0=" not in hash_of(page)

    page.drag(".minimap canvas", 0.4, 0.6)
    page.wait_for(lambda: "p.tbmem.t0=" in hash_of(page))
    assert page.complaints() == []


def test_a_brushed_range_lists_lifetimes_operators_and_events(page: Browser, ask: looking.Ask) -> None:
    page.drag(TOP, 0.3, 0.5)
    page.until("document.querySelector('#range-log') !== null")
    begin, end = re.findall(r"p\.tbmem\.b[01]=([\d.]+)", hash_of(page))
    where = {"run": "gpu", "file": FILE, "axis": "time", "from": begin, "to": end}
    assert "lifetime" in page.texts("#range-alive th, #range-freed th")

    page.click("#range-log summary")
    page.until("document.querySelector('#range-events tbody tr[data-at]') !== null")
    answer = ask("events", **where)
    looking.has(
        page, "#range-log", *(f"{name} {count:,}".replace(",", " ") for name, count in answer["counts"].items())
    )
    shown = looking.column(page, "range-events", 3)
    assert shown == answer["columns"]["action"][: len(shown)]

    page.click("#range-operators summary")
    page.until(
        "document.querySelector('#operators-in-range') !== null || document.querySelector('#range-operators .empty')"
    )

    page.click("#range-events tbody tr[data-at]")
    page.until("document.querySelector('#cursor-free').hidden === false")
    page.picture("range")
    assert page.complaints() == []


def test_all_events_of_a_range_are_reached_by_scrolling_and_the_server_filters_them(
    page: Browser, ask: looking.Ask
) -> None:
    page.drag(TOP, 0.12, 0.9)
    page.until("document.querySelector('#range-log') !== null")
    begin, end = re.findall(r"p\.tbmem\.b[01]=([\d.]+)", hash_of(page))
    everything = ask("events", run="gpu", file=FILE, axis="time", **{"from": begin, "to": end})
    assert everything["count"] > len(everything["columns"]["event"])  # more than the first answer has
    page.click("#range-log summary")
    page.until("document.querySelector('#range-events tbody tr[data-at]') !== null")

    reached = (
        "(() => { const view = document.querySelector('#range-events .scroll');"
        " view.scrollTop = view.scrollHeight;"
        f" return document.querySelector('#range-events tr[data-at=\"{everything['count'] - 1}\"]') !== null }})()"
    )
    page.until(reached)
    page.type("#range-events-search", "segment_alloc >1MiB")
    found = ask(
        "events", run="gpu", file=FILE, axis="time", search="segment_alloc >1MiB", **{"from": begin, "to": end}
    )["found"]
    page.until(f"document.querySelector('#range-events [role=status]').textContent.startsWith('{found} row')")
    assert page.complaints() == []


def test_the_lower_chart_shows_segments_by_pool_with_their_stack(page: Browser, ask: looking.Ask) -> None:
    answer = ask("reserved", run="gpu", file=FILE, axis="time")
    page.script(
        "((list) => { list.value = 'segments'; list.dispatchEvent(new Event('change')) })"
        "(document.querySelector('#pick-bands'))"
    )
    page.until("document.querySelector('#pools').textContent === 'default pool'")
    count = answer["segments"]["count"]
    looking.has(page, "#bands-shown", f"{count} of {count} segments")

    # when the largest is chosen with the keys and opened
    page.script(f"document.querySelector({json.dumps(LOW)}).focus()")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.until(STACK)
    largest = max(answer["segments"]["bands"]["bytes"])
    looking.has(page, ".dock .detail", looking.format_bytes(largest), "default pool")

    page.click(".dock .close")
    page.point(LOW, 0.8, 0.9, click=True)
    page.until("document.querySelector('.dock .detail h2')?.textContent === 'Segment'")
    page.picture("segments_over_time")
    assert "p.tbmem.bands=segments" in hash_of(page)
    assert page.complaints() == []


def test_charts_blocks_and_stack_are_on_the_first_screen(page: Browser) -> None:
    page.point_until(LOW, 0.2, 0.6, STACK)
    page.script("scrollTo(0, 0) || true")

    bottoms = page.script(
        "['section:nth-of-type(1) .frame', 'section:nth-of-type(2) .frame', '#allocator', '.dock .frames']"
        ".map((one) => document.querySelector(one).getBoundingClientRect()[one === '.dock .frames' ? 'top' : 'bottom'])"
    )
    high = page.script("innerHeight")
    assert max(bottoms) <= high
    assert page.script("document.querySelector('#allocator').parentNode.classList.contains('dock')")


def test_on_a_narrow_screen_the_blocks_are_below_the_charts(browser: Browser, server: Server) -> None:
    browser.size(390, 844)
    try:
        browser.open(address(server, "timeline", run="gpu", file=FILE), "timeline")
        browser.until("document.querySelector('#allocator')?.dataset.event")
        assert browser.script("document.querySelector('#allocator').parentNode.className") == "timeline"
    finally:
        browser.size()
