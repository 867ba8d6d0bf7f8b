"""The pixels of both charts of a timeline: each column is as high as memory was, without a hole, at every zoom."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pytest

from tbmem.analysis.plots.time_axis import time_axis_of
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.timeline import AllocationTimeline, save_timeline
from tbmem.model.timeline_tables import AllocationRows, DeviceTotals
from tbmem.offline.analyze import analyze
from tbmem.offline.reports.folders import write_report
from tests.browser import looking
from tests.browser.driving import Browser
from tests.browser.test_tab import PLUGIN, address
from tests.conftest import CORPUS
from tests.tensorboard_server import Server

LEFT, TOP, STRIP = 62, 18, 16
AXES = (TOP + 24 + STRIP, TOP + 24)
"""Pixels of each chart's height that are not drawn on."""
SHARES = ((0.0, 1.0), (0.3, 0.7), (0.512, 0.517), (0.97, 1.0), (0.4, 0.40001))
RECORDINGS = {
    "inference": "snapshots/Wedsonlin__medium_128_inference_memory_snapshot__77da8fe.pickle",
    "forward": "snapshots/ZidongLiu__memory__2f29ac4.pickle",
    "trace": "traces/pytorch__resnet50_num_workers_0__worker0.1623143089861__769c3eb.pt.trace.json.gz",
}
_READ = """\
((number, left, top, wide, high, own) => {
  const canvas = document.querySelectorAll('.frame canvas:first-child')[number];
  const data = canvas.getContext('2d', { willReadFrequently: true }).getImageData(left, top, wide, high).data;
  const grid = ['230,233,236', '74,79,84'];
  const found = [];
  for (let x = 0; x < wide; x++) {
    let [height, filled] = [0, 0];
    for (let y = 0; y < high; y++) {
      const at = 4 * (y * wide + x);
      const colour = `${data[at]},${data[at + 1]},${data[at + 2]}`;
      if (data[at + 3] !== 255 || (own ? !own.includes(colour) : grid.includes(colour))) continue;
      height = Math.max(height, high - y);
      filled += 1;
    }
    found.push([height, filled]);
  }
  return found;
})(...arguments)
"""


class Chart(NamedTuple):
    """What is drawn in the columns of a chart."""

    height: Any
    """Bytes up to the highest pixel."""
    filled: Any
    """Bytes of all pixels that are filled."""
    pixel: float
    """Bytes of one pixel."""


def tiny(count: int) -> AllocationTimeline:
    """Steps of many small allocations that are freed in reverse, above something that was there before."""
    each = np.arange(1000)
    steps = count // len(each)
    first = np.repeat(np.arange(steps) * 2 * len(each), len(each))
    rows = AllocationRows.of(
        count + 3,
        bytes=np.concatenate([np.tile(512 + each % 7, steps), [1 << 20, 9, 300_000]]),
        alloc_event=np.concatenate([np.tile(each, steps) + first, [-1, -1, -1]]),
        free_event=np.concatenate([np.tile(2 * len(each) - 1 - each, steps) + first, [-1, -1, 2 * count]]),
        category=np.concatenate([np.tile(each % 4, steps), [0, 1, 2]]),
    )
    totals = DeviceTotals(
        name="cuda:0",
        type=1,
        index=0,
        events=2 * count + 1,
        base_bytes=(1 << 20) + 300_009 + 50_000,
        unlisted_bytes=50_000,
    )
    return AllocationTimeline(source="snapshot", rows=rows, devices=(totals,))


@pytest.fixture(scope="module")
def recordings(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files by run: the demo that leaks, those of the corpus, 200 000 tiny allocations."""
    folder = tmp_path_factory.mktemp("bands")
    shutil.copytree(logdir / "leak", folder / "leak")
    found = {"leak": min((folder / "leak").glob("*.pt.trace.json.gz"))}
    for run, name in RECORDINGS.items() if CORPUS.is_dir() else ():
        (folder / run).mkdir()
        ending = "pt.trace.json.gz" if "traces/" in name else "snapshot.pickle"
        found[run] = folder / run / f"w.1.{ending}"
        found[run].write_bytes((CORPUS / name).read_bytes())
    (folder / "tiny").mkdir()
    found["tiny"] = folder / "tiny/w.tbmem.npz"
    save_timeline(tiny(200_000), found["tiny"])
    return found


@pytest.fixture(scope="module")
def own_server(recordings: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(recordings["tiny"].parent.parent, tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.close()


def drawn(browser: Browser, number: int, answer: dict[str, Any], shown: tuple[float, float]) -> Chart:
    """A chart of the page: 0 by category, 1 by allocations."""
    wide = looking.columns_of(browser)
    own = [",".join(str(int(one[at : at + 2], 16)) for at in (1, 3, 5)) for one in answer["colours"]]
    canvas = "document.querySelectorAll('.frame canvas:first-child')[arguments[0]]"
    high = browser.script(f"{canvas}.clientHeight", number) - AXES[number]
    columns = np.array(browser.script(_READ, number, LEFT, TOP, wide, high, own if number == 0 else None))
    pixel = 1.04 * highest(answer, shown) / high
    return Chart(columns[:, 0] * pixel, columns[:, 1] * pixel, pixel)


def highest(answer: dict[str, Any], shown: tuple[float, float]) -> int:
    """What a chart has room for."""
    x = np.array(answer["x"])
    first = max(int(np.searchsorted(x, shown[0], "right")) - 1, 0)
    inside = slice(first, int(np.searchsorted(x, shown[1], "right")))
    return max(*answer["total"][inside], *(answer["reserved"] or [0])[inside], 1)


@cache
def _analysis(path: Path) -> Analysis:
    return analyze(path)


def truth(path: Path, answer: dict[str, Any], shown: tuple[float, float], columns: int, near: float) -> tuple[Any, Any]:
    """The least and the most that a column may show: what was allocated in it, read from the file without the tab."""
    analysis = _analysis(path)
    clock, curve = time_axis_of(analysis.timeline, analysis.main.number), analysis.timeline.curve(analysis.main.number)
    x = clock.x(curve.event, answer["axis"]["axis"])
    edges = np.linspace(*shown, columns + 1)
    # x was rounded to a nanosecond
    near = near * (shown[1] - shown[0]) / columns + 2e-6
    first = np.maximum(np.searchsorted(x, edges[:-1] - near, "left") - 1, 0)
    last = np.maximum(np.searchsorted(x, edges[1:] + near, "right"), first + 1)
    parts = [curve.bytes[begin:end] for begin, end in zip(first, last, strict=True)]
    return np.array([part.min() for part in parts]), np.array([part.max() for part in parts])


def hidden(answer: dict[str, Any], shown: tuple[float, float], chart: Chart) -> Any:
    """Columns where dashes of a step or of what was reserved lie upon the outline."""
    count, width = len(chart.height), (shown[1] - shown[0]) or 1
    found = np.zeros(count, bool)
    steps = (np.array(answer["steps"]["begin"]) - shown[0]) / width * count
    found[[round(at) for at in steps.tolist() if -0.5 <= at < count - 1]] = True
    if answer["reserved"]:
        at = np.searchsorted(answer["x"], np.linspace(*shown, count + 1), "right") - 1
        reserved = np.array(answer["reserved"])[np.maximum(at, 0)]
        edges = np.stack([np.roll(reserved, by)[:count] for by in (-2, -1, 0, 1)])
        near = 4 * chart.pixel
        found |= (edges.min(axis=0) - near < chart.height) & (chart.height < edges.max(axis=0) + near)
    return found


def see(browser: Browser, path: Path, answer: dict[str, Any], shown: tuple[float, float], near: float = 0.01) -> None:
    """Hold both charts against each other, and against what the file says of each column and so much beside it."""
    top, low = (drawn(browser, number, answer, shown) for number in (0, 1))
    assert len(top.height) > 800
    # nothing is missing between the ground and the highest pixel
    assert np.array_equal(low.height, low.filled)
    # both have one outline, where it is not hidden by what is drawn upon the upper one; the tip of the peak's mark
    # hides a pixel, and each chart rounds to half of its own
    apart = (np.abs(top.height - low.height) > 1.5 * top.pixel + 0.5 * low.pixel) & ~hidden(answer, shown, low)
    assert not apart.any(), np.flatnonzero(apart)
    # and it is what the file says
    least, most = truth(path, answer, shown, len(low.height), near)
    assert (low.height <= most + low.pixel).all()
    assert (low.height >= least - low.pixel).all()
    assert low.height.max() >= most.max() - low.pixel
    if near < 1:
        assert np.mean(np.abs(low.height - most) <= low.pixel) > 0.97


@pytest.mark.parametrize("run", ["leak", *RECORDINGS, "tiny"])
def test_each_column_is_as_high_as_memory_was(
    browser: Browser, own_server: Server, recordings: dict[str, Path], run: str
) -> None:
    if run not in recordings:
        pytest.skip("no corpus here")
    place = {"run": run, "file": recordings[run].name}
    low, high = own_server.get(f"{PLUGIN}/timeline", **place)["axis"]["extent"]
    ranges = [(low + begin * (high - low), low + end * (high - low)) for begin, end in SHARES]
    if run == "leak":
        ranges.append((low + 0.96 * (high - low), high))

    for at, (begin, end) in enumerate(ranges if high > low else ranges[:1]):
        for largest in ("50", "2500") if at == 0 else ("2500",):
            state = {**place, "largest": largest}
            zoom = {} if (begin, end) == (low, high) else {"t0": repr(begin), "t1": repr(end)}
            asked = {"from": zoom["t0"], "to": zoom["t1"]} if zoom else {}

            browser.open(address(own_server, "timeline", **state, **zoom), "timeline")

            points = str(2 * looking.columns_of(browser))
            answer = own_server.get(f"{PLUGIN}/timeline", **state, **asked, points=points)
            see(browser, recordings[run], answer, (begin, end))
            browser.picture(f"bands-{run}-{at}-{largest}")
            found = answer["allocations"]
            looking.has(browser, "#bands-shown", f"{found['shown']:,} of {found['count']:,}".replace(",", " "))
    assert browser.complaints() == []


def test_the_slider_gives_as_many_as_it_says(browser: Browser, own_server: Server) -> None:
    for place in range(6):
        state = {"run": "tiny", "file": "w.tbmem.npz", "largest": str([50, 100, 250, 500, 1000, 2500][place])}
        browser.open(address(own_server, "timeline", **state), "timeline")
        said = looking.words(browser.text(".bar output")).replace(" ", "")
        assert said == state["largest"]
        assert own_server.get(f"{PLUGIN}/timeline", **state)["allocations"]["shown"] == int(said)
    assert browser.script("document.querySelector('#detail-slider').max") == "5"


@pytest.mark.parametrize("share", SHARES[:2])
def test_the_page_of_a_report_is_drawn_alike(
    browser: Browser, recordings: dict[str, Path], tmp_path: Path, share: tuple[float, float]
) -> None:
    path = recordings.get("forward", recordings["tiny"])
    page = write_report(path, out=tmp_path / "results").folder / "report.html"
    from tests.browser.test_report import answers_of

    answers = answers_of(page)
    (answer,) = [one for key, one in answers.items() if key.startswith("timeline?") and not isinstance(one, str)]
    low, high = answer["axis"]["extent"]
    shown = (low + share[0] * (high - low), low + share[1] * (high - low))

    browser.open(f"{page.as_uri()}#view=timeline&t0={shown[0]!r}&t1={shown[1]!r}", "timeline", tab=False)

    see(browser, path, answer, shown, near=1.5 / (share[1] - share[0]))
    assert quote(page.name) in browser.script("location.href")
