"""Cells of the table of profilers, each in a process of its own."""

from __future__ import annotations

import pytest

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("tool", "moment", "cell"),
    [
        ("sys.setprofile", "out of window", "1 of 2 windows whole, 1 shorter"),
        ("profile", "record", "both"),
        ("emit_itt", "around record", "not recorded"),
    ],
)
def test_the_tool_is_whole(tool: str, moment: str, cell: str) -> None:
    assert load(PROJECT / "benchmarks" / "profilers.py").outcome(tool, moment) == cell
