"""Every screen against every other: runs of the demo and one that dies of memory, each figure in all its places."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tbmem.model.monitor_log import read_monitor_log
from tests.benchmarks.conftest import load
from tests.conftest import PROJECT

SCRIPT = PROJECT / "benchmarks" / "consistency.py"
MIB = 1 << 20
OUT_OF_MEMORY = """
    import torch
    from tbmem import MemoryCallback
    from tbmem.sources.counters import malloc

    malloc._SHARE_OF_A_STEP = malloc._CREDIT = 1.0  # a busy machine reads no less of its few steps

    kept = []
    with MemoryCallback() as memory:
        for step in range(30):
            kept.append(torch.ones(1 << 18))
            if step == 25:
                torch.empty(1 << 60, dtype=torch.uint8)
            memory.step()
"""
IN_A_WINDOW = """
    import torch
    from tbmem import MemoryCallback

    with MemoryCallback() as memory:
        for step in range(1, 41):
            torch.ones(1 << 26 if step == {step} else 1 << 10).sum()
            memory.step()
"""
AFTER_THE_LAST_STEP = """
    import torch
    from tbmem import MemoryCallback

    with MemoryCallback() as memory:
        for step in range(1, 41):
            torch.ones(1 << 10).sum()
            memory.step()
        torch.ones(1 << 26).sum()
"""
DEMO = ["-m", "tbmem", "demo", "--device", "cpu"]
RUNS = {
    "leak": [*DEMO, "--inject", "leak"],
    "spike": [*DEMO, "--inject", "spike"],
    "json": [*DEMO, "--steps", "40", "--json"],
    "warm-up": ["-c", textwrap.dedent(IN_A_WINDOW.format(step=3))],
    "recorded": ["-c", textwrap.dedent(IN_A_WINDOW.format(step=5))],
    "after the last step": ["-c", textwrap.dedent(AFTER_THE_LAST_STEP)],
    "out of memory": ["-c", textwrap.dedent(OUT_OF_MEMORY)],
}


@pytest.fixture(scope="module")
def consistency() -> Iterator[ModuleType]:
    """benchmarks/consistency.py as a module: it is in no package."""
    yield load(SCRIPT)
    sys.modules.pop("consistency", None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_no_two_screens_differ(consistency: ModuleType, tmp_path: Path, kind: str) -> None:
    # given a run, and what it printed
    done = subprocess.run(
        [sys.executable, *RUNS[kind]], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == (1 if kind == "out of memory" else 0), done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads(done.stdout) if kind == "json" else {}

    # when every screen is asked
    screens = consistency.Screens(folder, console=done.stderr + done.stdout, summary=summary)
    found = consistency.readings(screens)

    # then each figure has one value, and none of the places is empty
    groups = consistency.by_figure(found)
    assert not [name for name, group in groups.items() if consistency.differing(group)], consistency.table(found)
    assert {"steps", "status", "verdict", "peak", "allocated"} <= {figure for _of, figure in groups}
    places = {reading.place.partition(",")[0] for reading in found}
    assert {"log", "scalars", "watch --json", "watch", "check --json", "report --json", "report", "tab"} <= places

    # and the documentation has each figure that a finding carries
    findings = read_monitor_log(folder / "plugins/tbmem/monitor.jsonl").findings
    facts = {name for finding in findings if not finding.kind.is_quiet for name in finding.evidence}
    assert facts <= set(re.findall(r"`(\w+)`", (PROJECT / "docs/python_api.md").read_text()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+2.08 MiB/step since", [(2.08 * MIB, 0.005 * MIB)]),
        ("grew by 12 KiB per step", [(12 * 1024, 512)]),
        ("nothing", []),
    ],
)
def test_a_rate_in_words(consistency: ModuleType, text: str, expected: list[tuple[float, float]]) -> None:
    assert list(consistency.sizes(text, consistency.RATE)) == [pytest.approx(one) for one in expected]


@pytest.mark.parametrize(
    ("text", "expected"), [("38 min 1 s", (2281, 0.5)), ("1 h 9 min", (4140, 30)), ("0.5 s", (0.5, 0.05))]
)
def test_a_duration_in_words(consistency: ModuleType, text: str, expected: tuple[float, float]) -> None:
    assert consistency.duration(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((2.08 * MIB, 0.005 * MIB), (2178416, 0.5), True),
        ((2.08 * MIB, 0.005 * MIB), (1.38 * MIB, 0.005 * MIB), False),
        ((100, 0), (101, 0), False),
        (("leak", 0), ("leak", 0), True),
        (("leak", 0), ("stable", 0), False),
    ],
)
def test_two_places_differ(
    consistency: ModuleType, first: tuple[float | str, float], second: tuple[float | str, float], same: bool
) -> None:
    one, other = (consistency.Reading("figure", "cpu", "here", *value) for value in (first, second))

    assert consistency.differing([one, other]) is not same


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "name a run's folder" in done.stderr
    assert "Traceback" not in done.stderr
