"""The Estimate view over a measurement: what is chosen, how it is aligned, and what the variants redraw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.estimates.fit import Alternative, Fit, estimate_from_run
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.estimator.estimate import write_estimate
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.timeline import AllocationTimeline, save_timeline
from tbmem.present.views.prediction import variant_view
from tbmem.units import format_bytes
from tests.analysis.estimates.test_fit import run
from tests.analysis.timelines import recording, training_step
from tests.browser.driving import Browser
from tests.browser.looking import has
from tests.browser.test_report import report
from tests.browser.test_tab import address
from tests.tensorboard_server import Server

JOB = Job(model="gpt2", batch=8)
GPU = gpu_named("t4")
SETTINGS = ("", "roundup_power2_divisions:2")
PEAK = timeline_of_run(run()).peak(0).bytes


def larger(factor: int) -> SimulatedRun:
    made = run()
    return replace(made, size=made.size * factor)


def stepped() -> AllocationTimeline:
    """A step without an optimizer step."""
    return recording(*training_step(0, 0))


def variants() -> list[dict[str, Any]]:
    """Batches of 8 and 16, of which only the first is possible with checkpointing."""
    found = []
    for batch, checkpoint, factor in ((8, False, 1), (16, False, 2), (8, True, 1)):
        job, made = replace(JOB, batch=batch, checkpoint=checkpoint), larger(factor)
        for text in SETTINGS:
            settings = parse_settings(text)
            estimate = estimate_from_run(job, made, settings, GPU)
            found.append(variant_view(estimate, timeline_of_run(made, settings, GPU.total)))
    return found


def write_runs(folder: Path, estimate_folder: str) -> None:
    """A recording of the run that was estimated, one of a larger run, and the estimate with its variants."""
    for name, factor in (("training", 1), ("other", 3)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        save_timeline(timeline_of_run(larger(factor), source="trace"), folder / name / "w.tbmem.npz")
    change = Alternative(change="bf16 throughout", allocated=100, reserved=2 << 20, fit=Fit.FITS, batch=8)
    estimate = replace(estimate_from_run(JOB, run(), parse_settings(""), GPU), alternatives=(change,))
    write_estimate(folder / estimate_folder, estimate, run(), variants())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("estimated")
    write_runs(folder, "est")
    for name, timeline in (("stepped", stepped()), ("bare", recording({"bytes": 9 << 20, "begin": 0}))):
        (folder / name).mkdir()
        save_timeline(timeline, folder / name / "w.tbmem.npz")
    write_estimate(folder / "plain", estimate_from_run(JOB, run(), parse_settings(""), GPU), run())
    running = Server(folder, tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.close()


def lines(browser: Browser) -> dict[str, tuple[list[float], list[int]]]:
    """The curves of the chart."""
    code = "document.querySelector('#estimate-plot').chart.lines.map(({name, x, y}) => [name, x, y])"
    return {name: (x, y) for name, x, y in browser.script(code)}


def highest(browser: Browser, name: str) -> int:
    return max(lines(browser)[name][1])


def rows(browser: Browser, table: str) -> list[list[str]]:
    every = f"[...document.querySelectorAll('#estimate-{table} tbody tr')]"
    found: list[list[str]] = browser.script(f"{every}.map((row) => [...row.cells].map((one) => one.innerText))")
    return found


def opened(browser: Browser, served: Server, **state: str) -> None:
    chosen = {"run": "training", "estimate": json.dumps(["est", "gpt2_batch8.tbmem.npz"], separators=(",", ":"))}
    browser.complaints()
    browser.open(address(served, "estimate", **{**chosen, **state}), "estimate")


def slide(browser: Browser, position: int) -> None:
    set_value = f"(slider.value = {position}, slider.dispatchEvent(new Event('input')))"
    browser.script(f"((slider) => {set_value})(document.querySelector('#variant-batch'))")


def test_the_curves_of_an_estimate_in_another_run_folder_lie_over_the_measured_ones(
    browser: Browser, served: Server
) -> None:
    opened(browser, served)

    # the same run: its estimate also counts the allocator's segments as events, and still lies in the same phases
    (x, y), (predicted_x, predicted_y) = lines(browser)["measured"], lines(browser)["predicted"]
    assert max(y) == max(predicted_y) == PEAK
    places = [3 * axis[values.index(PEAK)] for axis, values in ((x, y), (predicted_x, predicted_y))]
    assert [int(place) for place in places] == [2, 2]
    assert places[0] != places[1]
    assert [row[0] for row in rows(browser, "phases")] == ["forward pass", "backward pass", "optimizer step"]
    assert {row[3] for row in rows(browser, "phases")} == {"+0 B"}
    assert {row[3] for row in rows(browser, "categories")} == {"+0 B"}
    assert "steps and phases lie over each other" in browser.text("#estimate-aligned")
    assert browser.complaints() == []


def test_fit_range_alternatives_and_notes_are_shown(browser: Browser, served: Server) -> None:
    opened(browser, served)

    has(browser, ".tiles", "fits", format_bytes(PEAK), "expected")
    (band,) = browser.script("document.querySelector('#estimate-plot').chart.ranges")
    assert band["y0"] < PEAK < band["y1"]
    assert rows(browser, "alternatives") == [["bf16 throughout", "100 B", "2.00 MiB", "fits"]]
    assert browser.script("document.querySelector('.notes').textContent.includes('something was assumed')")


def test_the_slider_redraws_the_predicted_curve_over_the_measured_one(browser: Browser, served: Server) -> None:
    opened(browser, served)

    slide(browser, 1)

    assert (highest(browser, "predicted"), highest(browser, "measured")) == (2 * PEAK, PEAK)
    has(browser, "#estimate-told", f"+{format_bytes(PEAK)} against the estimate as given")
    has(browser, ".tiles", format_bytes(2 * PEAK))
    # a link to the variant shows it again
    opened(browser, served, batch="16", checkpoint="no", settings="=")
    assert highest(browser, "predicted") == 2 * PEAK


def test_a_setting_of_the_allocator_redraws_what_is_reserved(browser: Browser, served: Server) -> None:
    opened(browser, served)
    before = highest(browser, "predicted, reserved")

    browser.script(
        "((list) => (list.value = 'roundup_power2_divisions:2', list.dispatchEvent(new Event('change'))))"
        "(document.querySelector('#variant-settings'))"
    )

    expected = variants()[1]["peak_reserved"]
    assert expected != before
    assert highest(browser, "predicted, reserved") == expected


def test_a_combination_that_was_not_estimated_is_not_made_up(browser: Browser, served: Server) -> None:
    opened(browser, served)
    slide(browser, 1)

    browser.click("#variants input[type=checkbox]")

    has(browser, "#estimate-told", "This combination could not be estimated.")
    assert highest(browser, "predicted") == 2 * PEAK


def test_the_recording_of_another_run_can_be_chosen(browser: Browser, served: Server) -> None:
    opened(browser, served)

    browser.click("#pick-measured")
    browser.click(f".picker-list [data-value='{json.dumps(['other', 'w.tbmem.npz'], separators=(',', ':'))}']")

    browser.until(f"document.querySelector('#estimate-plot')?.chart.marks[0].y === {3 * PEAK}")
    assert highest(browser, "predicted") == PEAK


def test_without_variants_the_page_names_the_command_that_computes_them(browser: Browser, served: Server) -> None:
    opened(browser, served, estimate=json.dumps(["plain", "gpt2_batch8.tbmem.npz"], separators=(",", ":")))

    has(browser, "#variants", "tbmem estimate gpt2 --batch 8 --gpu t4-16gb --variants --out LOGDIR/plain")
    assert highest(browser, "predicted") == PEAK


@pytest.mark.parametrize("state", [{"estimate": '["est","gone.npz"]'}, {"measured": '["training","gone.npz"]'}])
def test_a_file_that_is_not_there_is_an_error(browser: Browser, served: Server, state: dict[str, str]) -> None:
    opened(browser, served, **state)

    has(browser, "[role=alert]", "gone.npz")


@pytest.mark.parametrize(
    ("run", "told", "end"),
    [
        ("stepped", "aligned by steps only", 1),
        ("bare", "the recording has no steps", 1),
        ("est", "only one of the two curves is known", 2),
    ],
)
def test_how_the_curves_are_aligned_is_told(browser: Browser, served: Server, run: str, told: str, end: int) -> None:
    opened(browser, served, run=run)

    assert told in browser.text("#estimate-aligned")
    assert highest(browser, "predicted") == PEAK
    assert 0 <= min(lines(browser)["predicted"][0]) <= max(lines(browser)["predicted"][0]) <= end
    assert browser.complaints() == []


def test_names_of_files_keep_inside_a_narrow_tab(browser: Browser, served: Server) -> None:
    opened(browser, served)

    browser.script("document.querySelector('.bar.wrapped').style.width = '200px'")

    code = "[...document.querySelectorAll('.bar.wrapped .picker-open')].map((one) => one.getBoundingClientRect().right)"
    right = browser.script("document.querySelector('.bar.wrapped').getBoundingClientRect().right")
    assert max(browser.script(code)) <= right


def test_a_zoomed_range_stays_when_another_variant_is_chosen(browser: Browser, served: Server) -> None:
    opened(browser, served)
    browser.click("#estimate-plot canvas:last-of-type")
    browser.press("+")
    before = browser.script("document.querySelector('#estimate-plot').chart.range")

    slide(browser, 1)

    assert before != [0, 1]
    assert browser.script("document.querySelector('#estimate-plot').chart.range") == before


def test_the_report_has_the_slider_too(browser: Browser, tmp_path: Path) -> None:
    write_runs(tmp_path, "training")
    page = report(tmp_path / "training", tmp_path / "report.html")

    browser.open(f"{page.as_uri()}#view=estimate", "estimate", tab=False)
    slide(browser, 1)

    assert (highest(browser, "predicted"), highest(browser, "measured")) == (2 * PEAK, PEAK)
    assert {row[0] for row in rows(browser, "phases")} == {"forward pass", "backward pass", "optimizer step"}
