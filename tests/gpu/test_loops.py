"""The loops of the zoo and the corpus with their tensors on the GPU, as ``benchmarks/verdicts.py`` judges them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CORPUS, PROJECT

LOOPS = PROJECT / "benchmarks" / "loops"
FOLDERS = (LOOPS / "dev", LOOPS / "held_out", CORPUS / "loops")
NEED_THE_CPU = {
    "dataset_lru_without_limit": "its loader shuffles by a generator of the CPU",
    "ok_prefetch_thread": "torch's default device is that of one thread",
    "replay_list_of_frames": "torch.from_numpy() gives tensors of the CPU",
}
"""Loops that do not run on a GPU as they are written, and why."""
TOLD_APART = {"ok_rope_cache_grows_to_longest": "the longest input needs 3 times the memory, which a GPU's peaks show"}
"""Loops in which exact peaks show a step that stands out, though nothing is wrong with it."""


@pytest.mark.gpu
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_loops_are_judged_on_a_gpu_as_on_the_cpu(folder: Path) -> None:
    if not folder.is_dir():
        pytest.skip(f"no loops at {folder}")
    # given
    command = [sys.executable, str(PROJECT / "benchmarks" / "verdicts.py"), "--loops", str(folder), "--device", "cuda"]
    command += ["--no-overhead", "--jobs", "2", "--json"]
    # when
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    # then: dev has three that are missed; a busy machine may hide a leak or two of some KiB on the host, and leaves
    # less time to look for holders: steps of 0.3 ms are over before a look was due
    assert set(result["failures"]) <= NEED_THE_CPU.keys()
    assert len([name for name in result["missed"] if name not in NEED_THE_CPU]) <= 5, result["missed"]
    assert set(result["false_alarms"]) <= TOLD_APART.keys()
    assert result["lines_named"] >= 0.6
