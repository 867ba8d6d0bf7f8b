"""What `benchmarks/gpu_check.py` brought back from a real GPU, read where there is none: beside what torch wrote."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tbmem.model.finding import FindingKind
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.sources.trace.reader import read_trace
from tests.test_gpu_check import gpu_check as gpu_check

H100 = Path(__file__).parent / "recorded_on_gpu" / "h100"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("clean", FindingKind.STABLE), ("leak", FindingKind.LEAK), ("spike", FindingKind.SPIKE)],
)
def test_torchs_counters_of_a_real_gpu_are_judged_as_what_they_are(
    gpu_check: ModuleType, name: str, kind: FindingKind
) -> None:
    # given
    rows = [json.loads(line) for line in (H100 / f"counters_{name}.jsonl").read_text().splitlines()]
    # then
    assert gpu_check.verdict_of(rows, "cuda:0").kind is kind


def test_the_peak_of_a_trace_is_the_highest_total_that_the_profiler_wrote() -> None:
    # given
    file = H100 / "window.pt.trace.json.gz"
    totals = [_total(event) for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]]
    # when
    timeline = read_trace(file)
    # then
    assert timeline.peak(timeline.device_number("cuda:0")).bytes == max(totals)


def test_a_snapshot_ends_with_what_its_segments_hold() -> None:
    # given
    file = H100 / "window.snapshot.pickle"
    segments = pickle.loads(file.read_bytes())["segments"]
    # when
    timeline = read_snapshot(file)
    # then
    end = timeline.curve(timeline.device_number("cuda:0")).bytes[-1]
    assert end == sum(segment["allocated_size"] for segment in segments)


def _total(event: Mapping[str, Any]) -> int:
    """The bytes that a memory event of the GPU says are allocated; 0 of another event."""
    given = event.get("args", {})
    return given.get("Total Allocated", 0) if event.get("name") == "[memory]" and given.get("Device Type") == 1 else 0
