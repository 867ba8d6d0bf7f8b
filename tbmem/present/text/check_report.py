"""Results of checks as lines, JSON, JUnit XML and GitHub annotations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree  # nosec B405  # only writes

from tbmem.analysis.runs.checks import Result
from tbmem.analysis.runs.run_status import RunStatus

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold; a finding quotes lines of anybody's source."""


def gate_lines(results: Sequence[Result], notes: Sequence[str] = ()) -> list[str]:
    """One line per check, and the finding behind one that does not hold; then the notes."""
    lines = []
    for result in results:
        lines.append(f"{'ok  ' if result.holds else 'FAIL'}  {result.check:<10} {result.place}: {result.message}")
        lines += [f"      {detail}" for detail in result.details if not result.holds]
    return [*lines, *(f"note  {note}" for note in notes)]


def gate_view(
    run: str, results: Sequence[Result], notes: Sequence[str] = (), status: RunStatus | None = None
) -> dict[str, Any]:
    """The results as plain JSON values."""
    return {
        "run": run,
        **(status.to_dict() if status is not None else {}),
        "holds": all(result.holds for result in results),
        "checks": [asdict(result) for result in results],
        "notes": list(notes),
    }


def gate_junit(run: str, results: Sequence[Result]) -> bytes:
    """The results as the XML that CI systems read: one test case per check."""
    failed = str(sum(not result.holds for result in results))
    numbers = {"tests": str(len(results)), "failures": failed, "errors": "0"}
    suites = ElementTree.Element("testsuites", numbers)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _in_xml(f"tbmem {run}"), **numbers})
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", {"classname": f"tbmem.{result.place}", "name": result.check})
        if not result.holds:
            failure = ElementTree.SubElement(case, "failure", {"message": result.message})
            failure.text = _in_xml("\n".join((result.message, *result.details)))
    ElementTree.indent(suites)
    xml: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return xml


def gate_annotations(results: Sequence[Result], notes: Sequence[str] = ()) -> list[str]:
    """Workflow commands of GitHub Actions for what does not hold, and for the notes."""
    failed = [result for result in results if not result.holds]
    lines = [" · ".join((f"{result.place}: {result.message}", *result.details)) for result in failed]
    return [
        *(f"::error title=tbmem {result.check}::{_escaped(line)}" for result, line in zip(failed, lines, strict=True)),
        *(f"::warning title=tbmem::{_escaped(note)}" for note in notes),
    ]


def _in_xml(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
