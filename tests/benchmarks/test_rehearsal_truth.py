"""What rehearsal_truth.py says of two recordings, and how it runs a program of a clone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tbmem.model.gpus import GPUS
from tests.benchmarks.conftest import load
from tests.conftest import PROJECT
from tests.sources.snapshot.snapshots import block, event, segment, snapshot

PROGRAM = """
import pickle, sys
from pathlib import Path
SCALE = 1
recorded = pickle.loads(bytes.fromhex(sys.argv[1]))
recorded["device_traces"][0][0]["size"] *= SCALE
recorded["segments"][0]["blocks"][0]["requested_size"] *= SCALE
Path("out.pickle").write_bytes(pickle.dumps(recorded))
"""


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    """benchmarks/rehearsal_truth.py as a module."""
    return load(PROJECT / "benchmarks" / "rehearsal_truth.py")


@pytest.fixture
def recording() -> Any:
    trace = [event("segment_alloc", 0, 2048), event("alloc", 0, 1000, 2), event("alloc", 1024, 1024, 3)]
    recorded = snapshot(segment(0, block(1024, 1000), block(1024, 1024)), trace=trace)
    del trace[0]  # the segment is older than the recording
    return recorded


@pytest.fixture
def case(truth: ModuleType, recording: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clone with one program and one snapshot, and a device that is this machine."""
    clone = tmp_path / "clones" / "owner" / "name"
    clone.mkdir(parents=True)
    (clone / "train.py").write_text(PROGRAM)
    (clone / "real.pickle").write_bytes(pickle.dumps(recording))
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=clone, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr(truth, "device_environment", lambda python, gpu: {**os.environ, "PYTHONPATH": ""})
    monkeypatch.setattr(truth, "torch_version", lambda python: "2.6.0")
    options = (pickle.dumps(recording).hex(),)
    source = truth.Source("owner/name", commit.strip())
    return truth.Case("a", source, "real.pickle", "train.py", options, "out.pickle", "2.6.0")


def outcome(truth: ModuleType, case: Any, tmp_path: Path) -> Any:
    return truth.outcome_of(case, tmp_path / "clones", sys.executable)


def test_a_program_is_run_at_its_commit(truth: ModuleType, case: Any, tmp_path: Path) -> None:
    # given a clone whose work tree has moved on
    (tmp_path / "clones" / "owner" / "name" / "train.py").write_text("raise SystemExit(3)")

    result = outcome(truth, case, tmp_path)

    assert result.verdict == "equal"
    assert result.difference == ""
    assert result.real == truth.Figures(allocations=2, start=0, peak=2024, reserved=2048, at_end=2048)


def test_an_edit_shows_and_is_not_explained(truth: ModuleType, case: Any, tmp_path: Path) -> None:
    change = sys.modules["rehearsal_cases"].Edit("train.py", "SCALE = 1", "SCALE = 2", "to differ")

    result = outcome(truth, replace(case, edits=(change,)), tmp_path)

    assert result.verdict == ""
    assert result.difference == "1 more, 1 fewer; after 0 equal ones [1,000] became [2,000]"
    assert "**unexplained**" in truth.row(result)


@pytest.mark.parametrize(
    ("torch", "verdict", "remarks"), [("2.6.0", "cause below", "the card"), ("2.14.1", "another torch", "temporaries")]
)
def test_the_cause_depends_on_the_version(truth: ModuleType, case: Any, torch: str, verdict: str, remarks: str) -> None:
    real = truth.Figures(2, 0, 1_000_000, 2_000_000, 0)
    named = replace(case, cause="the card", other_torch="temporaries")

    beyond = truth.Outcome(named, torch, real, replace(real, peak=1_001_000), "1 more")

    assert (beyond.verdict, beyond.remarks) == (verdict, f"{remarks}; allocations: 1 more")
    assert truth.Outcome(named, torch, real, replace(real, peak=1_000_400), "").verdict == "within limits"


def test_what_is_missing_is_said(truth: ModuleType, case: Any, tmp_path: Path) -> None:
    with pytest.raises(truth.NotRunError, match="no clone at"):
        truth.outcome_of(case, tmp_path / "elsewhere", sys.executable)
    with pytest.raises(truth.NotRunError, match="its clone has no other.pickle"):
        outcome(truth, replace(case, snapshot="other.pickle"), tmp_path)
    with pytest.raises(truth.NotRunError, match="GiB of the host's memory"):
        outcome(truth, replace(case, host_gib=1e9), tmp_path)


def test_a_program_that_fails_is_not_skipped(truth: ModuleType, case: Any, tmp_path: Path) -> None:
    with pytest.raises(truth.ProgramError, match="fromhex"):
        outcome(truth, replace(case, options=("no number",)), tmp_path)


def test_cases_name_known_gpus_and_differ(truth: ModuleType) -> None:
    assert {case.gpu for case in truth.CASES} <= set(GPUS)
    assert len({(case.source, case.snapshot) for case in truth.CASES}) == len(truth.CASES)
