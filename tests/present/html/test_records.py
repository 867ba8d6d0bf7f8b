"""Summaries, findings and cells as a notebook displays them: the console's words, escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from tbmem.model.cell_memory import CellLevels, CellMemory
from tbmem.model.finding import Finding, FindingKind, FindingList, Findings, Severity
from tbmem.model.html_display import HtmlDisplay
from tbmem.model.oom import OomHolder
from tbmem.present.lines import finding_line
from tbmem.present.text.cell import cell_lines, levels_line
from tbmem.present.text.run_end import summary_lines
from tests.conftest import GIB, MIB
from tests.present.text.test_run_end import BARE, SUMMARY

HOSTILE = "<img src=x onerror=alert(1)> & \"quotes\" 'here'"
LEAK = Finding(
    kind=FindingKind.LEAK,
    severity=Severity.CRITICAL,
    device="cuda:0",
    rank=3,
    first_step=1,
    last_step=30,
    message="+8.20 MiB/step since step 4",
    advice="keep it without its graph: .detach() or .item()",
)
CELL = CellMemory(
    seconds=3.2,
    levels=(CellLevels(device="cuda:0", before=GIB, after=3 * GIB // 2, peak=4 * GIB, total=8 * GIB),),
    kept=(OomHolder(name="list 'outputs'", bytes=512 * MIB, count=4, lines=("train.py:5  outputs.append(x)",)),),
)


def text_of(record: HtmlDisplay) -> str:
    """Text as it is seen, with single spaces."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", record._repr_html_()))).strip()


def words(line: str) -> str:
    return re.sub(r"\s+", " ", line)


def test_a_summary_has_every_line_of_the_console() -> None:
    shown = text_of(SUMMARY)

    for line in summary_lines(SUMMARY):
        for part in line.split(" · ") if line.startswith("verdict") else (line,):
            assert words(part) in shown, part
    # and the finding that went before the verdict
    assert "SPIKE GPU 0 stable between" in shown


def test_of_a_leaks_findings_the_verdict_is_the_last_word() -> None:
    # given a run with two findings of one leak, the second of which is the verdict, and a spike
    spike = replace(LEAK, kind=FindingKind.SPIKE, message="a spike")
    earlier = replace(LEAK, message="earlier")
    html = replace(SUMMARY, verdicts=(LEAK,), findings=(earlier, spike, LEAK))._repr_html_()

    assert html.count(LEAK.message) == 1
    assert html.index("a spike") < html.index("<summary>1 earlier finding</summary>") < html.index("earlier<")


def test_a_summary_with_nothing_in_it() -> None:
    assert text_of(BARE) == "30 steps in a run of 12.3 s"


def test_a_finding_has_the_consoles_words() -> None:
    shown = text_of(LEAK)

    for part in finding_line(LEAK).split(" · "):
        assert words(part) in shown


@pytest.mark.parametrize("kind", [Findings, FindingList])
def test_a_list_of_findings(kind: type[Findings] | type[FindingList]) -> None:
    # given more than are shown at once
    findings = [replace(LEAK, last_step=step, message=f"finding {step}") for step in range(14)]

    html = kind(findings)._repr_html_()

    # then all are there, those that are too many behind a line
    assert [f"finding {step}" in html for step in range(14)] == [True] * 14
    assert html.index("finding 4<") < html.index("9 more findings") < html.index("finding 5<")
    assert text_of(kind()) == "no findings"


def test_a_cell_has_the_consoles_lines() -> None:
    shown = text_of(CELL)

    assert cell_lines(CELL) == [
        "cell in 3.2 s",
        "GPU 0: allocated 1.00 GiB before, 1.50 GiB after (+512.00 MiB) · peak in the cell 4.00 GiB (50 % of 8.00 GiB)",
        "kept: +512.00 MiB by list 'outputs' · train.py:5  outputs.append(x)",
    ]
    for line in cell_lines(CELL):
        assert words(line) in shown


@pytest.mark.parametrize(("run", "words"), [(3 * GIB, ", 3.00 GiB in the steps of its run"), (4 * GIB, "")])
def test_a_cell_whose_run_has_a_lower_peak_says_so(run: int, words: str) -> None:
    # given: the model was made before the run's first step, or the peak is a step's
    shown = levels_line(CELL.reaching("cuda:0", run).levels[0])

    assert shown.endswith(f"peak in the cell 4.00 GiB (50 % of 8.00 GiB){words}")


def test_a_cell_says_how_much_is_held_by_nothing_that_is_known() -> None:
    less = replace(CELL, kept=(replace(CELL.kept[0], bytes=384 << 20),))

    assert cell_lines(less)[-1] == (
        "kept: 128.00 MiB by no variable, model or optimizer that could be seen: autograd's nodes of kept tensors,"
        " libraries, and caches of theirs"
    )


@pytest.mark.parametrize(
    "record",
    [
        replace(LEAK, message=HOSTILE, advice=HOSTILE, device=HOSTILE),
        replace(
            SUMMARY,
            folder=HOSTILE,
            logdir=HOSTILE,
            problems=(HOSTILE,),
            exception=HOSTILE,
            findings=(LEAK,),
            verdicts=(),
        ),
        replace(CELL, kept=(OomHolder(name=HOSTILE, bytes=MIB, count=1, lines=(HOSTILE,)),), exception=HOSTILE),
    ],
    ids=["finding", "summary", "cell"],
)
def test_what_is_hostile_is_only_text(record: HtmlDisplay) -> None:
    html = record._repr_html_()

    assert "<img" not in html
    assert set(re.findall(r"<(\w+)", html)) <= {"div", "b", "code"}
    assert "<img src=x onerror=alert(1)> & \"quotes\" 'here'" in unescape(html)
