"""The detector as a whole: series in, findings and a verdict out."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tbmem.analysis.detector.detector import Detector, judge
from tbmem.analysis.growth_rate import ENOUGH_STEPS
from tbmem.config import PatternsConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import GIB, MIB

LEAK, SPIKE, STABLE = FindingKind.LEAK, FindingKind.SPIKE, FindingKind.STABLE
SHIFT, NEAR, GROWTH, WARMUP = (
    FindingKind.LEVEL_SHIFT,
    FindingKind.NEAR_CAPACITY,
    FindingKind.GROWING,
    FindingKind.WARMUP,
)
PERIODIC = FindingKind.PERIODIC


def series(levels: Sequence[float], peaks: Sequence[float] | None = None, total: float = 80) -> list[MemorySample]:
    """Samples of an accelerator from levels (and peaks) in GiB, one per step."""
    return [
        MemorySample(
            step=step,
            time=1000.0 + step,
            device="cuda:0",
            allocated=round(level * GIB),
            peak_allocated=round(peak * GIB),
            device_total=round(total * GIB),
        )
        for step, (level, peak) in enumerate(zip(levels, peaks or levels, strict=True), start=1)
    ]


def kinds(findings: Sequence[Finding]) -> list[FindingKind]:
    return [finding.kind for finding in findings]


# the guide's three patterns


def test_45_47_49_51_is_a_leak() -> None:
    # given: 2 GiB are kept at each step
    samples = series([45 + 2 * step for step in range(17)])
    # when
    findings = judge(samples)
    # then: told in time, before 80 GiB are reached, however long the patience
    leak = next(finding for finding in findings if finding.kind is LEAK)
    assert leak.last_step <= 13
    assert 3 <= leak.evidence["steps_left"] <= 6
    assert findings[-1].kind is LEAK
    assert findings[-1].severity is Severity.CRITICAL
    assert findings[-1].evidence["bytes_per_step"] == pytest.approx(2 * GIB, rel=0.01)
    assert findings[-1].message.startswith("+2.00 GiB/step since step 2")


def test_a_device_that_a_leak_has_filled_names_it() -> None:
    # given: 1 % of the device is kept at each step
    findings = judge(series([20 + 0.8 * step for step in range(75)]))
    # when
    full = [finding for finding in findings if finding.kind is NEAR]
    # then: the last report before
    assert full
    assert all(finding.message.endswith(" · a leak was reported in step 57") for finding in full)


def test_45_45_78_of_80_is_a_spike_and_near_capacity() -> None:
    # when
    findings = judge(series([45, 45, 78, 45, 45]))
    # then
    assert kinds(findings[:-1]) == [NEAR, SPIKE]
    assert findings[0].severity is Severity.CRITICAL
    assert findings[-1] == findings[0]
    assert (
        findings[1].message
        == "step 3 needed +33.00 GiB (73 %) more than usual: it held 78.00 GiB, the usual is 45.00 GiB"
    )


def test_a_spike_in_the_very_last_step_is_told_at_the_end() -> None:
    # when
    findings = judge(series([45, 45, 78]))
    # then
    assert set(kinds(findings)) == {NEAR, SPIKE}


def test_47_48_47_48_is_stable() -> None:
    # when
    findings = judge(series([47 + step % 2 for step in range(40)]))
    # then
    assert kinds(findings) == [STABLE]
    assert findings[0].message == "stable at 47.00 to 48.00 GiB over 39 evaluated steps"


# what is kept


@pytest.mark.parametrize(
    "levels",
    [
        [45 + step * 0.01 for step in range(320)],
        [45 + step % 4 + step * 0.01 for step in range(400)],
        [45.0] * 200 + [45 + step * 0.01 for step in range(320)],
        [40 + step * 0.0003 for step in range(600)],
        [45 + 0.1 * (step // 10) for step in range(600)],
    ],
    ids=["10 MiB a step", "under a sawtooth", "late", "300 KiB a step on 40 GiB", "100 MiB every tenth step"],
)
def test_a_leak_is_found(levels: list[float]) -> None:
    assert judge(series(levels))[-1].kind is LEAK


def test_a_slow_leak_needs_patience() -> None:
    # given: 300 KiB a step on 40 GiB
    samples = series([40 + step * 300 / 1024**2 for step in range(400)])
    # when / then: too short at first, certain later
    assert judge(samples[:25])[-1].kind is STABLE
    assert judge(samples[:200])[-1].kind is GROWTH
    assert judge(samples)[-1].kind is LEAK


def test_a_leak_says_what_it_knows() -> None:
    # when
    leak = judge(series([45 + step * 0.01 for step in range(320)]))[-1]
    # then
    assert leak.evidence["holder"] is None
    assert "floor" in leak.evidence["known_by"] or "lowest levels" in leak.evidence["known_by"]
    assert leak.evidence["growth_bytes"] == leak.evidence["floor_last_bytes"] - leak.evidence["floor_first_bytes"]
    assert leak.evidence["steps_left"] == pytest.approx((80 - 48.2) / 0.01, rel=0.02)
    assert leak.evidence["seconds_left"] == pytest.approx(leak.evidence["steps_left"], rel=0.01)
    assert "no evidence was collected" in leak.message
    assert "out of memory in ~3 1" in leak.message
    assert json.loads(json.dumps(leak.evidence)) == leak.evidence
    assert leak.advice


def test_a_leak_is_told_again_only_when_it_is_four_times_as_large() -> None:
    # when
    findings = judge(series([45 + step * 0.01 for step in range(2000)], total=640))[:-1]
    # then
    sizes = [finding.evidence["growth_bytes"] for finding in findings]
    assert set(kinds(findings)) == {LEAK}
    assert 2 <= len(sizes) <= 8
    assert all(later >= 4 * earlier for earlier, later in zip(sizes, sizes[1:], strict=False))


def test_a_leak_that_falls_back_is_taken_back() -> None:
    # when
    findings = judge(series([45 + step * 0.01 for step in range(400)] + [45.0] * 50))
    # then: as soon as four steps are over
    assert kinds(findings)[-2:] == [GROWTH, STABLE]
    assert 401 <= findings[-2].first_step <= 405
    assert findings[-2].evidence["reason"] == "most of the growth is free again"
    assert findings[-2].severity is Severity.INFO


def test_a_leak_after_one_that_was_taken_back_is_told() -> None:
    # given
    climb = [45 + step * 0.01 for step in range(400)]
    # when
    findings = judge(series([*climb, *[45.0] * 100, *[level + step * 0.01 for step, level in enumerate(climb)]]))
    # then
    assert GROWTH in kinds(findings)
    assert findings[-1].kind is LEAK


# what is not kept


@pytest.mark.parametrize(
    "levels",
    [
        [47.0] * 300,
        [45 + step % 4 for step in range(300)],
        [45 + step % 8 for step in range(300)],
        [45.0] * 50 + [55.0] * 100,
        [20.0] + [45.0] * 300,
        [45 + min(step, 8) * 0.5 for step in range(300)],
        [50 - step * 0.01 for step in range(300)],
        [45 + 3 * (1 - 0.5**step) for step in range(300)],
    ],
    ids=["flat", "accumulation 4", "accumulation 8", "level shift", "first step", "short ramp", "falling", "warm-up"],
)
def test_an_innocent_series_is_no_leak(levels: list[float]) -> None:
    findings = judge(series(levels))
    assert LEAK not in kinds(findings)
    assert findings[-1].kind in (STABLE, SHIFT)


def test_a_plateau_after_a_ramp_is_no_leak_in_the_end() -> None:
    # given: a bounded cache that fills for 40 steps, then 400 steps at its level
    levels = [45 + min(step, 40) * 0.2 for step in range(440)]
    # when / then
    assert judge(series(levels))[-1].kind is STABLE


def test_a_level_that_has_come_back_is_no_verdict() -> None:
    # given longer episodes for 100 steps
    findings = judge(series([45.0] * 50 + [55.0] * 100 + [46.0] * 100))
    # then
    assert kinds(findings) == [SHIFT, STABLE]


def test_a_change_of_level_is_told_once_and_is_neither_spike_nor_leak() -> None:
    # when
    findings = judge(series([45.0] * 50 + [55.0] * 50))
    # then
    assert kinds(findings) == [SHIFT, SHIFT]
    assert (findings[0].first_step, findings[0].severity) == (51, Severity.INFO)
    assert "+10.00 GiB more" in findings[0].message


def test_validation_is_told_once() -> None:
    # given: the level stays, the peak of each 50th step does not
    peaks = [60.0 if step % 50 == 0 else 46.0 for step in range(1, 501)]
    # when
    findings = judge(series([45.0] * 500, peaks))
    # then: first taken for a spike, then known as a beat
    assert kinds(findings) == [SPIKE, PERIODIC, STABLE]
    assert findings[0].first_step == 50
    assert findings[1].evidence["period_steps"] == findings[2].evidence["period_steps"] == 50
    assert "periodic, as with" in findings[2].message


def test_the_worst_spike_is_the_verdict() -> None:
    # given
    peaks = [46.0] * 20 + [60.0] + [46.0] * 20 + [70.0] + [46.0] * 35 + [65.0] + [46.0] * 20
    # when
    findings = judge(series([45.0] * len(peaks), peaks, total=160))
    # then
    assert [finding.first_step for finding in findings] == [21, 42, 78, 42]


def test_a_leak_outweighs_a_spike() -> None:
    levels = [45 + step * 0.01 for step in range(400)]
    peaks = [level + (20 if step == 150 else 0) for step, level in enumerate(levels)]
    findings = judge(series(levels, peaks))
    assert SPIKE in kinds(findings)
    assert findings[-1].kind is LEAK


def test_flat_noise_is_hardly_ever_called_a_leak() -> None:
    # given: 200 series of 300 steps, noise of 1 MiB to 4 GiB, even, normal or with a long tail
    shapes: list[Callable[[random.Random, float], float]] = [
        lambda dice, width: dice.uniform(-width, width),
        lambda dice, width: dice.gauss(0, width),
        lambda dice, width: dice.expovariate(1 / width),
        lambda dice, width: width * (dice.random() < 0.3),
    ]
    called = 0
    for seed in range(200):
        dice = random.Random(seed)
        width = 2 ** dice.uniform(-10, 1)
        shape = shapes[seed % len(shapes)]
        samples = series([45 + shape(dice, width) for _ in range(300)])
        # when
        called += judge(samples)[-1].kind is LEAK
    # then
    assert called < 4


# what is judged


@pytest.mark.parametrize("count", range(ENOUGH_STEPS + 1))
def test_too_few_steps_are_too_early_to_tell(count: int) -> None:
    assert judge(series([45.0] * count))[-1].kind is WARMUP


def test_enough_steps_are_a_verdict() -> None:
    assert judge(series([45.0] * (ENOUGH_STEPS + 1)))[-1].kind is STABLE


@pytest.mark.parametrize("warmup", [0, 1, 5, 40])
def test_steps_of_the_warm_up_are_not_judged(warmup: int) -> None:
    # given: wild at first, then flat
    levels = [20 + 30 * (step % 2) for step in range(warmup)] + [45.0] * 60
    # when
    findings = judge(series(levels), PatternsConfig(warmup_steps=warmup))
    # then
    assert kinds(findings) == [STABLE]
    assert findings[0].message == "stable at 45.00 GiB over 60 evaluated steps"


def test_capacity_is_watched_during_the_warm_up_too() -> None:
    assert NEAR in kinds(judge(series([79.0, 45.0, 45.0])))


def test_a_device_without_counters_has_no_findings() -> None:
    # given
    samples = [MemorySample(step=step, time=0.0, device="xpu:0") for step in range(1, 50)]
    # when / then
    assert len(judge(samples)) == 1


def test_counters_that_are_missing_now_and_then_do_not_hide_a_leak() -> None:
    # given
    samples = series([45 + step * 0.01 for step in range(400)])
    gaps = [each._replace(allocated=None, peak_allocated=None) if each.step % 3 == 0 else each for each in samples]
    # when / then
    assert judge(gaps)[-1].kind is LEAK


def test_a_level_of_zero_is_a_level() -> None:
    # given: nothing on the device at first
    samples = series([0.0] * 5 + [1.0] * 20)
    # when / then
    assert judge(samples)[-1].evidence["lowest_bytes"] == 0


@pytest.mark.parametrize(
    ("read", "is_resident"),
    [(range(300), False), (range(0, 300, 20), False), (range(3), True), (range(120), True), ((), True)],
)
def test_a_level_that_was_hardly_read_is_not_told_as_that_of_all_steps(read: Sequence[int], is_resident: bool) -> None:
    # given a process whose malloc is read in some steps
    samples = [
        MemorySample(
            step=step,
            time=1000.0 + step,
            device="cpu",
            allocated=200 * MIB if step in read else None,
            reserved=600 * MIB if step in read else None,
            host_rss=690 * MIB,
        )
        for step in range(300)
    ]
    # when
    found = judge(samples)[-1]
    # then
    assert found.kind is FindingKind.STABLE
    assert found.evidence["lowest_bytes"] == (690 if is_resident else 200) * MIB
    assert found.evidence.get("channel") == ("host" if is_resident else None)


def on_cpu(samples: Sequence[MemorySample], profiled: range) -> list[MemorySample]:
    return [each._replace(device="cpu", profiled=each.step in profiled, host_available=None) for each in samples]


def test_on_the_cpu_profiled_steps_are_not_judged() -> None:
    # given: the profiler's records lie in the same heap, and leave it a little higher
    levels = [4.0] * 20 + [5.0, 6.0, 7.0] + [4.2] * 40
    # when
    findings = judge(on_cpu(series(levels), range(21, 24)))
    # then
    assert kinds(findings) == [STABLE]
    assert findings[0].evidence["judged_steps"] == 59


def test_on_an_accelerator_profiled_steps_are_judged() -> None:
    # given
    samples = [each._replace(profiled=20 < each.step < 24) for each in series([45.0] * 20 + [70.0] + [45.0] * 40)]
    # when / then
    assert SPIKE in kinds(judge(samples))


def test_a_spike_just_before_the_profilers_window_is_told() -> None:
    # given
    levels = [4.0] * 20 + [8.0] + [4.0] * 40
    # when
    findings = judge(on_cpu(series(levels), range(22, 25)))
    # then
    assert SPIKE in kinds(findings)


def test_a_leak_is_found_in_spite_of_the_profilers_windows() -> None:
    # given
    levels = [4 + step * 0.01 + (2 if 50 <= step < 53 or 100 <= step < 103 else 0) for step in range(1, 401)]
    samples = [
        each._replace(profiled=each.step in (50, 51, 52, 100, 101, 102)) for each in on_cpu(series(levels), range(0))
    ]
    # when / then
    assert judge(samples)[-1].kind is LEAK


@pytest.mark.parametrize(("percent", "severity"), [(88, "info"), (95, "warning"), (98, "critical")])
def test_near_capacity_has_a_severity_by_threshold(percent: float, severity: str) -> None:
    # when
    findings = judge(series([0.8 * percent] * 20))
    # then
    assert kinds(findings[:-1]) == [NEAR]
    assert findings[0].severity.value == severity
    assert findings[0].evidence["used_percent"] == pytest.approx(percent)
    assert findings[-1].kind is (STABLE if severity == "info" else NEAR)


def test_rank_and_device_are_those_of_the_samples() -> None:
    samples = [each._replace(rank=3, device="cuda:5") for each in series([45, 45, 78, 45])]
    assert {(finding.rank, finding.device) for finding in judge(samples)} == {(3, "cuda:5")}


def test_live_and_afterwards_the_same_is_found() -> None:
    # given
    samples = series([45 + step * 0.01 for step in range(300)], [47 + 20 * (step == 77) for step in range(300)])
    detector = Detector()
    # when
    live = [finding for sample in samples for finding in detector.update(sample)]
    # then
    assert [*live, *detector.close(), detector.verdict()] == judge(samples)


def test_a_verdict_can_be_asked_for_at_any_time_and_changes_nothing() -> None:
    # given
    samples, asked, plain = series([45 + step * 0.01 for step in range(100)]), Detector(), Detector()
    # when
    for sample in samples:
        asked.update(sample)
        asked.verdict()
        plain.update(sample)
    # then
    assert asked.verdict() == plain.verdict()


# published series

UNITS = {"used_mib": MIB, "gpu_used_mib": MIB, "max_alloc_mb": MIB, "rss_anon_mb": MIB, "reserved_gib": GIB}
FLAT = ["issue_mmdet1956_flat.csv", "titan_moe16b.csv", "titan_qwen3vl_text.csv", "mmengine_llama3_qlora.csv"]
SHORT = ["issue_cutagi71_leak.csv", "issue_primerl2527_rss_leak.csv", "issue_pytorch1509_warmup.csv"]
RAMPS = {"smi_dcconv_a6000.csv": SHIFT, "smi_miris_v100s.csv": STABLE, "smi_rpf_4090_a.csv": STABLE}
"""The first gets half a GiB more in one step long after its start."""


def published(folder: Path, name: str) -> list[MemorySample]:
    """A series of the corpus: its last column is the memory, its first the step (or a count of samples)."""
    with open(folder / "series" / name, newline="") as file:
        rows = list(csv.reader(file))
    unit = UNITS[rows[0][-1]]
    from_zero = rows[1][0] == "0"
    return [
        MemorySample(
            step=int(row[0]) + from_zero,
            time=0.0,
            device="cuda:0",
            allocated=round(float(row[-1]) * unit),
        )
        for row in rows[1:]
    ]


def test_every_published_series_is_looked_at(corpus: Path) -> None:
    sources = json.loads((corpus / "series" / "sources.json").read_text())
    assert sorted(sources) == sorted([*FLAT, *SHORT, *RAMPS])


@pytest.mark.parametrize("name", FLAT)
def test_published_runs_that_were_stable_are_stable(name: str, corpus: Path) -> None:
    assert kinds(judge(published(corpus, name)))[-1] is STABLE


@pytest.mark.parametrize("name", SHORT)
def test_published_runs_of_a_few_points_are_too_short_to_tell(name: str, corpus: Path) -> None:
    findings = judge(published(corpus, name))
    assert kinds(findings) == [WARMUP]
    assert findings[0].message.startswith("too few steps for a verdict")


@pytest.mark.parametrize(("name", "verdict"), RAMPS.items())
def test_published_runs_that_start_up_and_stay_are_no_leak(name: str, verdict: FindingKind, corpus: Path) -> None:
    findings = judge(published(corpus, name))
    assert LEAK not in kinds(findings)
    assert findings[-1].kind is verdict


def test_of_two_levels_that_leave_the_usual_range_in_a_step_the_higher_one_is_reported() -> None:
    # given: a step that keeps 3 GiB more, and needs 30 GiB more within
    samples = series([45.0] * 39 + [48.0] + [45.0] * 12, [50.0] * 39 + [80.0] + [50.0] * 12, total=141)

    (spike,) = [finding for finding in judge(samples)[:-1] if finding.kind is SPIKE]

    assert (
        "needed +30.00 GiB (60 %) more than usual: it reached a peak of 80.00 GiB, the usual is 50.00 GiB"
        in spike.message
    )


@pytest.mark.parametrize(
    ("updated", "words"), [(True, "step 40 needed"), (False, "validation"), (None, "step 40 needed")]
)
def test_a_spike_tells_what_kind_of_step_it_was(updated: bool | None, words: str) -> None:
    # given: 40 steps of which one needs far more
    samples = [sample._replace(updated=updated) for sample in series([45.0] * 39 + [60.0] + [45.0] * 12)]
    # when
    spike = next(finding for finding in judge(samples) if finding.kind is SPIKE)
    # then
    assert words in spike.message
