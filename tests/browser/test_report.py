"""report.html from the disk, without a server: each view shows its numbers, asks nobody, complains of nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tbmem.offline.reports.folders import write_report
from tests.browser import looking
from tests.browser.conftest import HOSTILE
from tests.browser.driving import Browser
from tests.offline.snapshots import write_snapshot


def report(run: Path, file: Path) -> Path:
    """Write the report of a run as a user does."""
    subprocess.run([sys.executable, "-m", "tbmem", "report", str(run), "--html", str(file)], check=True, timeout=240)
    return file


@pytest.fixture(scope="module")
def page(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(logdir / "leak", tmp_path_factory.mktemp("report") / "report.html")


def answers_of(page: Path) -> dict[str, Any]:
    """The answers that stand in the page."""
    text = page.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="tbmem-data">(.*?)</script>', text, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(data)
    return found


@pytest.fixture(scope="module")
def ask(page: Path) -> looking.Ask:
    """Answers by the keys of the contract."""
    answers = answers_of(page)

    def answer(view: str, **parameters: str) -> Any:
        given = {name: value for name, value in parameters.items() if name in ("run", "file")}
        for key in (given, {} if view == "overview" else given):
            text = "&".join(f"{name}={value}" for name, value in sorted(key.items()))
            found = answers.get(f"{view}?{text}" if text else view)
            if found is not None:
                return answers[found] if isinstance(found, str) else found
        raise KeyError(view)

    return answer


@pytest.fixture(scope="module")
def run(ask: looking.Ask) -> dict[str, Any]:
    found: dict[str, Any] = ask("index")["runs"][0]
    return found


SEEN: dict[str, Callable[[Browser, looking.Ask, str, str], None]] = {
    "overview": lambda browser, ask, run, file: looking.see_overview(browser, ask, run),
    "live": lambda browser, ask, run, file: looking.see_live(browser, ask, run),
    "timeline": looking.see_timeline,
    "peak": looking.see_peak,
    "steps": looking.see_steps,
    "operators": looking.see_operators,
}


def test_views_without_data_have_no_tab(browser: Browser, page: Path) -> None:
    # given the report of one rank on the CPU, without an estimate
    browser.open(f"{page.as_uri()}#view=segments", "overview", tab=False)

    assert [name.lower() for name in browser.texts("nav [role=tab]")] == list(SEEN)


@pytest.mark.parametrize("view", SEEN)
def test_each_view_shows_the_numbers_of_its_answer(
    browser: Browser, page: Path, ask: looking.Ask, run: dict[str, Any], view: str
) -> None:
    file = run["recordings"][0]["file"]
    browser.complaints()
    browser.asked()

    browser.open(f"{page.as_uri()}#view={view}&file={quote(file)}", view, tab=False)

    SEEN[view](browser, ask, run["run"], file)
    browser.picture(f"report-{view}")
    assert [url for url in browser.asked() if not url.startswith(("file:", "about:", "data:", "blob:"))] == []
    assert browser.complaints() == []


def test_back_and_forward_go_through_the_views(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri(), "overview", tab=False)
    browser.go("timeline")
    browser.go("peak")

    browser.script("history.back()")
    browser.until("document.querySelector('main').dataset.drawn === 'timeline'")
    browser.script("history.back()")
    browser.until("document.querySelector('main').dataset.drawn === 'overview'")
    browser.script("history.go(2)")
    browser.until("document.querySelector('main').dataset.drawn === 'peak'")

    # and a link to a file that is not in the report says so
    browser.open(f"{page.as_uri()}#view=peak&file=gone.json", "peak", tab=False)
    looking.has(browser, "main [role=alert]", "has no recording gone.json")
    assert browser.complaints() == []


def test_a_range_is_summed_without_a_server(
    browser: Browser, page: Path, ask: looking.Ask, run: dict[str, Any]
) -> None:
    # given all of the recording, brushed
    file = run["recordings"][0]["file"]
    first, last = ask("timeline", run=run["run"], file=file)["axis"]["extent"]
    state = f"view=timeline&file={quote(file)}&b0={first}&b1={last}"

    browser.open(f"{page.as_uri()}#{state}", "timeline", tab=False)
    browser.until("document.querySelector('#brushed .tiles') !== null")

    # then what was made in it is the sum of the bands that begin in it
    answer = ask("timeline", run=run["run"], file=file)["allocations"]
    bands = answer["bands"]
    made = sum(size for size, before in zip(bands["bytes"], bands["before"], strict=True) if not before)
    looking.has(browser, "#brushed .tiles", looking.format_bytes(made))
    if answer["count"] > answer["shown"]:
        looking.has(browser, "#brushed", "the report has no others")
    looking.click_a_band(browser, "section:nth-of-type(2) .frame canvas[tabindex]")
    browser.until("document.querySelector('.detail .facts') !== null")
    assert browser.complaints() == []


def test_several_recordings_side_by_side(browser: Browser, tmp_path: Path) -> None:
    # given three ranks, one of which needs more
    for rank in range(3):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[(9 if rank == 2 else 1) << 20])
    folder = write_report(tmp_path, out=tmp_path / "results").folder
    browser.complaints()

    browser.open((folder / "report.html").as_uri(), "compare", tab=False)

    # then they are shown together, the first against the last, and each opens its own page
    looking.has(browser, "#odd", "rank2 differs from the others")
    assert browser.texts("#sides tbody tr td:nth-child(3)") == ["1.00 MiB", "1.00 MiB", "9.00 MiB"]
    looking.has(browser, "#grown", "rank2 against rank0: recorded peak +800.0 %")
    browser.until("document.querySelector('#sides-plot')?.chart?.lines.length === 3")
    browser.picture("report-several")
    browser.click(".part-bar:nth-child(2)")
    browser.until("document.querySelector('main')?.dataset.drawn === 'timeline'")
    assert "rank1" in browser.script("location.pathname")
    assert browser.complaints() == []


def test_names_that_look_like_html_stay_text(browser: Browser, logdir: Path, tmp_path: Path) -> None:
    strange = logdir / HOSTILE / "</script><script>alert(1)<"
    page = report(logdir / HOSTILE, tmp_path / "report.html")
    assert strange.name not in page.read_text(encoding="utf-8")

    browser.open(f"{page.as_uri()}#view=overview", "overview", tab=False)

    assert HOSTILE in browser.texts(".run h2")[0]
    assert browser.script("document.querySelectorAll('main img').length") == 0
    assert browser.complaints() == []


def test_dark_follows_the_system(browser: Browser, page: Path) -> None:
    browser.dark(True)
    browser.open(f"{page.as_uri()}#view=timeline", "timeline", tab=False)

    assert browser.script("document.documentElement.dataset.theme") == "dark"
    browser.picture("report-dark")

    browser.dark(False)
    browser.until("document.documentElement.dataset.theme === 'light'")
