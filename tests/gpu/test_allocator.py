"""The simulated caching allocator beside torch's own, on random programs under several settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT

PROGRAM = Path(__file__).with_name("random_program.py")
SETTINGS = (
    "expandable_segments:False",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "max_split_size_mb:32,garbage_collection_threshold:0.5",
)


@pytest.mark.gpu
@pytest.mark.parametrize(("seed", "settings"), [pytest.param(*each, id=each[1]) for each in enumerate(SETTINGS)])
def test_requests_are_served_as_torchs_allocator_serves_them(seed: int, settings: str, tmp_path: Path) -> None:
    # given
    benchmark = load(PROJECT / "benchmarks" / "allocator.py")
    snapshot = tmp_path / "random.snapshot.pickle"
    command = [sys.executable, str(PROGRAM), str(seed), str(snapshot)]
    subprocess.run(command, env={**os.environ, "PYTORCH_ALLOC_CONF": settings}, timeout=200, check=True)
    # when
    ((row, is_right, events, _),) = benchmark.judge(snapshot, 1)
    # then: the same segments at the same moments, and the same bytes reserved
    assert is_right, row
    assert events > 2_000
