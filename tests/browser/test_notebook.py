"""An executed notebook, exported to HTML, as a reader sees it: light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.driving import Browser
from tests.notebook.kernels import TRAINING, run_notebook

nbconvert = pytest.importorskip("nbconvert", reason="no Jupyter: pip install --group notebooks")

THEMES = ("light", "dark")
READABLE = 4.5
"""Contrast of text: WCAG 2.2, level AA."""
CELLS = (
    "%load_ext tbmem\nimport tbmem, torch" + TRAINING,
    "%%tbmem --logdir logs --name a\nhistory = []\n"
    "train(60, lambda step: history.append(torch.zeros(1 << 18)))\nraise ValueError('x')",
    "%%tbmem --logdir logs --name b\ntrain(14)",
    "tbmem.show('logs/a', height=800)",
    "tbmem.show('logs', theme='dark')",
)
# the ground behind an element: that of the nearest parent which has one, mixed with what is translucent in between
_CONTRAST = """((element) => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * (top[3] ?? 1) + below[at] * (1 - (top[3] ?? 1)));
  const layers = [];
  let opacity = 1;
  for (let node = element; node; node = node.parentElement) {
    const style = getComputedStyle(node);
    layers.push(parse(style.backgroundColor));
    opacity *= Number(style.opacity);
  }
  const ground = layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  const ink = over([...parse(getComputedStyle(element).color).slice(0, 3), opacity], ground);
  const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, at) => {
    const part = colour[at] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0);
  const [low, high] = [light(ink), light(ground)].sort((one, two) => one - two);
  return (high + 0.05) / (low + 0.05);
})"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    _, executed = run_notebook(CELLS, tmp_path_factory.mktemp("notebook"))
    return executed


@pytest.fixture(params=THEMES)
def page(request: pytest.FixtureRequest, notebook: Any, browser: Browser, tmp_path: Path) -> str:
    """The exported page in the browser; its theme."""
    theme = str(request.param)
    text, _ = nbconvert.HTMLExporter(theme=theme).from_notebook_node(notebook)
    (tmp_path / "notebook.html").write_text(text, encoding="utf-8")
    browser.dark(theme == "dark")
    browser.load((tmp_path / "notebook.html").as_uri())
    browser.size(1200, 1400)
    browser.complaints()
    browser.asked()
    return theme


def test_charts_and_summaries_are_readable(browser: Browser, page: str) -> None:
    blocks = browser.texts("div.tbmem")

    # a chart, a summary and the cell's memory, of two cells
    assert len(blocks) == 6
    assert all(word in blocks[0] for word in ("CPU", "allocated", "resident peak", "step 60 · CPU memory · "))
    assert "60 steps in " in blocks[1]
    assert "verdict CPU: " in blocks[1]
    assert "list 'history'" in blocks[2]
    # text and lines stand out from the notebook's ground
    contrasts: list[float] = browser.script(
        f"[...document.querySelectorAll('div.tbmem div, div.tbmem b, div.tbmem code')].map({_CONTRAST})"
    )
    assert min(contrasts) >= READABLE
    inks = browser.script("[...document.querySelectorAll('div.tbmem svg')].map((svg) => getComputedStyle(svg).fill)")
    assert len(set(inks)) == 1
    browser.picture(f"notebook-{page}")


def test_the_chart_is_a_static_picture_in_its_place(browser: Browser, page: str) -> None:
    boxes = browser.script(
        "[...document.querySelectorAll('div.tbmem svg')].map((svg) => svg.getBoundingClientRect().toJSON())"
    )
    width = browser.script("document.documentElement.clientWidth")

    assert all(300 < box["width"] <= width for box in boxes)
    assert browser.script("document.querySelectorAll('div.tbmem script').length") == 0


@pytest.mark.parametrize(("number", "runs"), [(1, {"a"}), (2, {"a", "b"})])
def test_the_memory_tab_works_in_its_frame(browser: Browser, page: str, number: int, runs: set[str]) -> None:
    frame = f"iframe[title='Memory tab of logs{'/a' if number == 1 else ''}']"
    browser.script("document.querySelector(arguments[0]).scrollIntoView()", frame)

    browser.enter(frame)
    browser.until("document.querySelector('main')?.dataset.drawn === 'overview'")

    # the system's theme, or the one that was asked for
    assert browser.script("document.documentElement.dataset.theme") == (page if number == 1 else "dark")
    shown = browser.script("document.body.textContent")
    assert all(run in shown for run in runs)
    browser.picture(f"notebook-show-{number}-{page}")
    # and its views are drawn without a network, without an address of its own
    for view in ("live", "timeline", "peak"):
        browser.go(view)
    browser.leave()
    assert [url for url in browser.asked() if "tbmem" in url] == []
    assert [one for one in browser.complaints() if "about:srcdoc" in one] == []


def test_a_link_of_the_frames_page_stays_in_the_frame(browser: Browser, page: str) -> None:
    frame = "iframe[title='Memory tab of logs']"
    browser.script("document.querySelector(arguments[0]).scrollIntoView()", frame)
    browser.enter(frame)
    browser.until("document.querySelector('#runs tbody tr') !== null")

    browser.click("#runs tbody tr:nth-child(2)")
    browser.until("document.querySelector('.run') !== null")

    assert browser.script("location.href").startswith("about:srcdoc")
    browser.leave()
