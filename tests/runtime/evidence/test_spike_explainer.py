"""Real windows on the CPU with one step that needs more; the spike itself is told by hand, as a device's would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.runtime.evidence.spike_explainer import explain_spikes, recorded_levels, recorded_sources
from tbmem.runtime.profiler import MemoryProfiler
from tbmem.units import MIB

SCORES = 1024


def attend(length: int) -> float:
    scores = torch.ones(length, length)
    return float(scores.sum())


def spike(step: int, kind: FindingKind = FindingKind.SPIKE) -> Finding:
    return Finding(
        kind=kind,
        severity=Severity.WARNING,
        device="cpu",
        first_step=step,
        last_step=step,
        message="",
        evidence={"height_bytes": 4 * MIB},
    )


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, range]:
    """One window of the steps 2 to 4; in step 3 the attention is over a longer sequence."""
    with MemoryProfiler(folder=tmp_path_factory.mktemp("run"), wait=0, warmup=1, active=3, repeat=1) as profiler:
        for step in range(1, 6):
            attend(SCORES if step == 3 else 64)
            profiler.step()
    return profiler.ledger.recorded


def test_what_made_a_spike_is_named_where_a_window_covered_it(traces: dict[Path, range]) -> None:
    # when
    [finding] = explain_spikes([spike(3)], traces)
    # then
    [maker] = finding.evidence["allocated_by"]
    usual = 64 * 64 * 4
    assert maker["bytes"] == SCORES * SCORES * 4 - usual
    assert maker["line"].split(":")[0] == "evidence/test_spike_explainer.py"
    assert maker["line"].endswith(" attend")
    assert finding.message.endswith(f": 3.98 MiB by {maker['line']} (aten::ones)")
    assert finding.evidence["files"] == [next(iter(traces)).name]
    assert finding.first_step == 3


def test_an_occurrence_of_a_periodic_spike_is_explained_by_the_window_that_has_one(traces: dict[Path, range]) -> None:
    # given a spike of each 20th step, of which step 3 is one
    periodic = spike(83, FindingKind.PERIODIC)
    periodic.evidence.update(member_steps=[43, 63, 83], period_steps=20)
    # when
    [finding] = explain_spikes([periodic], traces)
    # then
    assert (finding.first_step, finding.last_step) == (3, 3)
    assert finding.evidence["allocated_by"][0]["operator"] == "aten::ones"


def test_what_no_window_covered_is_left_as_it_is(traces: dict[Path, range]) -> None:
    assert explain_spikes([spike(7), spike(3, FindingKind.LEAK)], traces) == []


def test_a_step_that_needed_no_more_than_the_others_has_no_maker(traces: dict[Path, range]) -> None:
    assert explain_spikes([spike(2)], traces) == []


def test_a_trace_that_cannot_be_read_explains_nothing(tmp_path: Path) -> None:
    # given
    broken = tmp_path / "broken.pt.trace.json"
    broken.write_text("{")
    # when / then
    assert explain_spikes([spike(3)], {broken: range(1, 5), tmp_path / "gone": range(1, 5)}) == []


def test_reading_ends_when_its_time_is_up(traces: dict[Path, range]) -> None:
    # given
    times = iter([0.0, 10.0])
    # when / then
    assert explain_spikes([spike(3)], traces, clock=lambda: next(times)) == []


def test_the_peaks_of_recorded_steps_those_of_a_steps_own_window_first(traces: dict[Path, range]) -> None:
    # given: a second window, for which there is no time
    late = {Path("late.pt.trace.json.gz"): range(8, 10), **traces}
    times = iter([0.0, 10.0])
    # when
    levels = recorded_levels(late, 3, clock=lambda: next(times))
    # then
    assert levels[3] - levels[2] == pytest.approx((SCORES * SCORES - 64 * 64) * 4, abs=64)
    assert set(levels) == {2, 3, 4}
    assert recorded_levels({Path("gone.pt.trace.json.gz"): range(2, 5)}, 3) == {}


def test_a_spike_that_names_its_lines_needs_no_other_finding(traces: dict[Path, range]) -> None:
    # given
    path, sources = recorded_sources(traces, 3)
    named = replace(spike(3), evidence=sources.to_evidence(path.name))
    # when / then
    assert sources.largest[0].operator == "aten::ones"
    assert explain_spikes([named], traces) == []
