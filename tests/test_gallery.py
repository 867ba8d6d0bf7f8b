"""Every pattern of docs/gallery.md runs as it stands there, and gets the verdict that stands above it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import PROJECT

HARNESS = """

def _told(summary):
    kinds = [finding.kind.value for finding in summary.findings] + [each.kind.value for each in summary.verdicts]
    return kinds, [finding.evidence.get("line") for finding in summary.findings]


import json, sys, time
torch.set_num_threads(1)
try:
    if "verdict" in globals():
        told = [verdict.kind.value], []
    else:
        def at_a_trainings_pace(step):
            train_step(step)
            time.sleep(0.01)  # in a tenth of a millisecond a large heap cannot be counted
        told = _told(watch(at_a_trainings_pace))
    print(json.dumps(told))
except RuntimeError:
    sys.exit("out of memory")
"""


class Pattern(NamedTuple):
    title: str
    verdicts: list[str]
    refused: list[str]
    line: str
    code: str


def _read() -> tuple[str, list[Pattern]]:
    parts = re.split(r"^## ", (PROJECT / "docs/gallery.md").read_text(), flags=re.MULTILINE)
    (loop,) = re.findall(r"```python\n(.*?)```", parts[0], flags=re.DOTALL)
    found = []
    for part in parts[1:]:
        (code,) = re.findall(r"```python\n(.*?)```", part, flags=re.DOTALL)
        (said,) = re.findall(r"^Verdict: (.*)$", part, flags=re.MULTILINE)
        said, _, line = said.partition(", at ")
        wanted, _, refused = said.partition("never")
        names = [re.findall(r"`(\w+)`", words) for words in (wanted, refused)]
        found.append(Pattern(part.partition("\n")[0], names[0], names[1], line.strip("`"), code))
    return loop, found


LOOP, PATTERNS = _read()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.title)
def test_a_pattern_gets_its_verdict(pattern: Pattern, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP + "\n" + pattern.code + HARNESS)

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, cwd=tmp_path)

    if pattern.verdicts == ["oom"]:
        assert done.stderr.rstrip().endswith("out of memory"), done.stderr
        (report,) = tmp_path.rglob("*.oom.txt")
        assert "module-level list 'history' in train.py (41 parts)" in report.read_text()
        return
    assert done.returncode == 0, done.stderr
    kinds, lines = json.loads(done.stdout.splitlines()[-1])
    assert kinds[-1] in pattern.verdicts or set(pattern.verdicts) & set(kinds), (kinds, done.stderr)
    assert not set(kinds) & set(pattern.refused)
    if "leak" not in pattern.verdicts:
        assert "leak" not in kinds
    else:
        assert kinds[-1] == "leak"
    if pattern.line:
        assert pattern.line in [line["text"] for line in lines if line], lines


def test_every_pattern_has_its_cause_and_its_fix() -> None:
    text = (PROJECT / "docs/gallery.md").read_text()

    assert len(PATTERNS) >= 12
    for part in text.split("\n## ")[1:]:
        assert "*Pattern:*" in part
        assert "*Fix:*" in part or "*Next:*" in part
