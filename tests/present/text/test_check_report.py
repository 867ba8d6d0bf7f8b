"""Results of checks for people, CI systems and GitHub."""

from __future__ import annotations

from xml.etree import ElementTree

from tbmem.analysis.runs.checks import Result
from tbmem.present.text.check_report import gate_annotations, gate_junit, gate_lines, gate_view

RESULTS = [
    Result(check="max-peak", place="rank 0 cpu", holds=True, message="peak 1.00 GiB"),
    Result(check="no-leak", place="rank 0 cpu", holds=False, message="verdict <LEAK>", details=("100 % more",)),
]


def test_lines() -> None:
    assert gate_lines(RESULTS) == [
        "ok    max-peak   rank 0 cpu: peak 1.00 GiB",
        "FAIL  no-leak    rank 0 cpu: verdict <LEAK>",
        "      100 % more",
    ]


def test_json() -> None:
    view = gate_view("run", RESULTS)

    assert view["holds"] is False
    assert [check["check"] for check in view["checks"]] == ["max-peak", "no-leak"]


def test_junit() -> None:
    suites = ElementTree.fromstring(gate_junit("run", RESULTS))

    (suite,) = suites
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True]


def test_junit_holds_any_line_of_source() -> None:
    quoted = Result(
        check="no-leak", place="rank 0 cpu", holds=False, message="LEAK", details=("kept.append('\x1b[0m')",)
    )

    (suite,) = ElementTree.fromstring(gate_junit("run", [quoted]))

    assert suite[0][0].text == "LEAK\nkept.append('\ufffd[0m')"


def test_annotations_are_one_line_each() -> None:
    assert gate_annotations(RESULTS) == [
        "::error title=tbmem no-leak::rank 0 cpu: verdict <LEAK> · 100 %25 more",
    ]


def test_notes_are_lines_and_warnings_and_a_runs_name_may_be_any_files() -> None:
    assert gate_lines([], ["rank 1 has not ended"]) == ["note  rank 1 has not ended"]
    assert gate_view("mine", [], ["rank 1 has not ended"])["notes"] == ["rank 1 has not ended"]
    assert gate_annotations([], ["rank 1\nhas not ended"]) == ["::warning title=tbmem::rank 1%0Ahas not ended"]
    (suite,) = ElementTree.fromstring(gate_junit("odd\udcff\x01<run>&", []))
    assert suite.get("name") == "tbmem odd\ufffd\ufffd<run>&"
