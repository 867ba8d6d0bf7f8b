"""The zoo of loops: every file tells the truth about itself in the form that the benchmark reads."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import PROJECT

FOLDERS = [PROJECT / "benchmarks" / "loops" / name for name in ("dev", "held_out")]
FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*.py"))]


def test_no_loop_is_in_both_folders() -> None:
    assert len({path.name for path in FILES}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_loop_is_well_formed(verdicts: ModuleType, path: Path) -> None:
    # when
    loop = verdicts.read_loop(path)
    lines = [line.strip() for line in path.read_text().splitlines()]
    # then
    assert loop.label in loop.accept
    assert loop.source
    assert (loop.label == "leak") == bool(loop.leak_line)
    if loop.leak_line:
        assert sum(loop.leak_line in line for line in lines if not line.startswith("LEAK_LINE")) == 1
