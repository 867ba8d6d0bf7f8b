"""A page on a view and the view's answer go in; an assertion fails where what is shown is not what is answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tbmem.units import format_bytes
from tests.browser.driving import Browser

Ask = Callable[..., Any]
"""``ask(view, **parameters)`` gives an answer."""


MARGINS = 62 + 28
"""Pixels of a chart beside its plot."""


def words(text: str) -> str:
    """Text with all kinds of spaces as one."""
    return re.sub(r"\s+", " ", text)


def has(browser: Browser, css: str, *texts: str) -> None:
    """All texts stand in the first such element."""
    shown = words(browser.script("document.querySelector(arguments[0]).textContent", css))
    for text in texts:
        assert words(text) in shown, f"{text!r} is not in {css}: {shown[:2000]}"


def column(browser: Browser, table: str, number: int) -> list[str]:
    """Cells of a table's column as text, of the rows that are drawn."""
    return [words(text) for text in browser.texts(f"#{table} tbody tr[data-at] td:nth-child({number})")]


def see_overview(browser: Browser, ask: Ask, run: str) -> None:
    table = ask("overview")["table"]
    if table is not None:
        assert column(browser, "runs", 1) == [one["run"] for one in table]
        browser.click(f"#runs tbody tr:nth-child({1 + [one['run'] for one in table].index(run)})")
        browser.until("document.querySelector('.run') !== null")
    (found,) = ask("overview", run=run)["runs"]
    for card in found["cards"]:
        place = f"[data-run='{run}'] [data-rank='{card['rank']}'][data-device='{card['device']}']"
        has(browser, place, card["label"], card["message"], card["line"], format_bytes(card["peak"]))
        has(browser, place, format_bytes(card["headroom"]), format_bytes(card["allocated"]))
    for step in found["next_steps"]:
        has(browser, f"[data-run='{run}']", step)
    # what a story says is not said again beside it
    told = {text for story in found["stories"] for text in story["advice"]}
    beside = browser.texts(f"[data-run='{run}'] .next li, [data-run='{run}'] .card .advice")
    assert not told & set(beside)


def see_live(browser: Browser, ask: Ask, run: str) -> None:
    answer = ask("live", run=run, x="step")
    browser.until("document.querySelector('#live-plot')?.chart?.lines.length > 0")
    charts = browser.script("['#live-levels', '#live-plot'].map((one) => document.querySelector(one).chart)")
    drawn = {one["name"]: one for chart in charts for one in chart["lines"]}
    (series,) = answer["series"]
    for name in ("allocated", "reserved", "peak"):
        line = drawn[series["peak_word"] if name == "peak" else name]
        assert line["x"] == series["peak_x" if name == "peak" else "x"]
        assert line["y"] == series[name]
        has(browser, ".latest", format_bytes(series[name][-1]))
    loud = [one for one in answer["findings"] if not one["quiet"]]
    assert sum(len(chart["marks"]) for chart in charts) == len(loud)
    for finding in loud:
        has(browser, ".finding-list", finding["message"])
    assert all(len(chart["stretches"]) == len(answer["windows"]) for chart in charts)
    browser.wait_for(lambda: painted(browser, 0) >= 3)


def see_steps(browser: Browser, ask: Ask, run: str, file: str) -> None:
    answer = ask("steps", run=run, file=file)
    browser.until("document.querySelector('#steps-plot')?.chart?.lines.length > 0")
    # the fault of the demo: every step keeps what the one before has left
    drawn = browser.script("document.querySelector('#steps-plot').chart.lines.map((line) => line.name)")
    differing = [f"step {step['step']}" for step in answer["steps"] if any(step["differs"])]
    assert drawn == ["typical", *differing]
    assert len(differing) >= 2
    kept = sum(line["kept_each"] for line in answer["lines"])
    has(browser, "main", f"at least {format_bytes(kept)} stay after each step")
    assert column(browser, "steps-lines", 1) == [line["line"] for line in answer["lines"]]
    assert column(browser, "steps-each", 2) == [f"{step['ns'] / 1e6:.3f} ms" for step in answer["each"]]
    assert column(browser, "steps-each", 8) == [format_bytes(step["freed_bytes"]) for step in answer["each"]]
    freed = browser.script("document.querySelector('#steps-freed').chart.lines.map((line) => [line.name, line.y])")
    assert freed == [[word, [step[f"{word}_bytes"] for step in answer["each"]]] for word in ("allocated", "freed")]


def see_timeline(browser: Browser, ask: Ask, run: str, file: str) -> None:
    answer = ask("timeline", run=run, file=file, largest="1000", points=str(2 * columns_of(browser)))
    bands = answer["allocations"]
    has(browser, "main", f"peak {format_bytes(answer['peak']['bytes'])}", *answer["words"])
    has(browser, "#bands-shown", f"{bands['shown']:,} of {bands['count']:,}".replace(",", " "))
    least = min(len(set(answer["colours"])), 3)
    for number in (0, 1):
        browser.wait_for(lambda number=number: painted(browser, number) >= least)  # type: ignore[misc]


def columns_of(browser: Browser) -> int:
    """Columns of pixels of a chart, once an answer of so many is drawn; a report has but one answer."""
    width = f"document.querySelector('.frame')?.clientWidth - {MARGINS}"
    fits = f"Number(document.querySelector('.timeline')?.dataset.columns) === {width}"
    browser.until(f"document.getElementById('tbmem-data') || {fits}")
    browser.until("document.querySelectorAll('.frame canvas')[2]?.width > 300")
    return int(browser.script(width))


def painted(browser: Browser, number: int) -> int:
    """How many colours there are in a canvas, at most some dozens."""
    found: int = browser.script(
        """(() => {
          const canvas = document.querySelectorAll('.frame canvas:first-child')[arguments[0]];
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let at = 0; at < data.length && seen.size < 60; at += 44) {
            if (data[at + 3] === 255) seen.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
          }
          return seen.size;
        })()""",
        number,
    )
    return found


def see_peak(browser: Browser, ask: Ask, run: str, file: str) -> None:
    answer = ask("peak", run=run, file=file)
    has(browser, ".tiles", format_bytes(answer["peak"]["bytes"]))
    shares = answer["by_category"]
    browser.click("#part-category")
    assert column(browser, "peak-category", 2) == [format_bytes(size) for size in shares["bytes"]]
    browser.click("#part-tree")
    has(browser, "#peak-tree", format_bytes(answer["modules"]["bytes"][0]))
    browser.click("#part-merged")
    assert column(browser, "peak-merged", 1)[: len(answer["merged"]["name"])] == answer["merged"]["name"][:42]
    browser.click("#part-stacks")
    has(browser, "#peak-stacks", format_bytes(answer["stacks"]["bytes"][0]))
    browser.click("#part-tensors")
    browser.until("document.querySelectorAll('#peak-tensors tbody tr[data-at]').length > 0")
    tensors = ask("tensors", run=run, file=file, limit="2000", sort="bytes", order="desc")["columns"]
    drawn = column(browser, "peak-tensors", 1)
    assert drawn == [format_bytes(size) for size in tensors["bytes"][: len(drawn)]]


def see_segments(browser: Browser, ask: Ask, run: str, file: str) -> None:
    answer = ask("segments", run=run, file=file)
    if answer["empty"]:
        has(browser, ".empty", answer["empty"]["title"], *answer["empty"]["commands"])
        return
    has(browser, ".tiles", format_bytes(answer["reserved"]), format_bytes(answer["allocated"]))
    has(browser, ".tiles", format_bytes(answer["fragmentation"]["fragmented_bytes"]))
    assert column(browser, "segments", 2) == [format_bytes(size) for size in answer["segments"]["bytes"]]


def see_operators(browser: Browser, ask: Ask, run: str, file: str) -> None:
    columns = ask("operators", run=run, file=file)["columns"]
    largest = sorted(columns["self_allocated"], reverse=True)
    drawn = column(browser, "operators", 8)
    assert drawn == [format_bytes(size) for size in largest[: len(drawn)]]
    calls = dict(zip(columns["name"], columns["calls"], strict=True))
    for name, count in zip(column(browser, "operators", 1), column(browser, "operators", 2), strict=True):
        assert count == f"{calls[name]:,}".replace(",", " ")


def see_ranks(browser: Browser, ask: Ask, run: str) -> None:
    answer = ask("ranks", run=run, recordings="1")
    assert column(browser, "ranks", 5) == [format_bytes(size) for size in answer["columns"]["peak"]]
    has(browser, "main", answer["odd"] or answer["empty"]["title"])


def see_compare(browser: Browser, ask: Ask, before: str, after: str) -> None:
    answer = ask("compare", before=before, after=after)
    totals = answer["recordings"][0]["totals"]
    assert column(browser, f"rec-{answer['recordings'][0]['device']}", 3) == [format_bytes(n) for n in totals["after"]]
    sides = ask("sides", before=before, after=after)
    assert column(browser, "sides", 3) == [format_bytes(size) for size in sides["peak"]]
    browser.until("document.querySelector('#sides-plot')?.chart?.lines.length === 2")
    has(browser, "#grown", answer["headline"]["label"], answer["headline"]["text"])


def see_estimate(browser: Browser, ask: Ask, run: str) -> None:
    answer: Mapping[str, Any] = ask("estimate", run=run)
    if answer["empty"]:
        has(browser, ".empty", answer["empty"]["title"], *answer["empty"]["commands"])
        return
    browser.until("document.querySelector('#estimate-plot')?.chart?.lines.length > 0")
    if answer["measured"]:
        has(browser, ".tiles", format_bytes(answer["measured"]["peak"]))


def click_a_band(browser: Browser, chart: str) -> None:
    """Click where a band of its own is drawn: where memory is low is another place in each recording that is made."""
    for across in (0.15, 0.3, 0.45, 0.6, 0.75):
        browser.point(chart, across, 0.6)
        browser.rest(0.3)
        if browser.script("document.querySelector(arguments[0]).style.cursor === 'pointer'", chart):
            browser.point(chart, across, 0.6, click=True)
            return
    raise AssertionError(f"no band can be clicked at any of five places of {chart}")
