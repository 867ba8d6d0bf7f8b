"""Jumps of the resident memory, told in the peaks that the screens show."""

from __future__ import annotations

from tbmem.analysis.patterns import judge
from tbmem.analysis.resident_peaks import ResidentPeaks
from tbmem.analysis.spikes import Jump, JumpKind
from tbmem.model.finding import FindingKind
from tbmem.model.sample import MemorySample
from tests.conftest import GIB, MIB


def _peaks(*levels: int) -> ResidentPeaks:
    peaks = ResidentPeaks()
    peaks.note((step, level * MIB) for step, level in enumerate(levels, 1))
    return peaks


def test_a_jump_is_told_in_the_peaks_that_the_screens_show() -> None:
    # given what was judged: 150 MiB less, which malloc had free at each step's beginning
    judged = Jump(JumpKind.SPIKE, 41, 41, 850 * MIB, 350 * MIB)

    shown = _peaks(*[500] * 40, 1000).shown(judged)

    assert (shown.peak, shown.usual, shown.height, shown.kept) == (1000 * MIB, 500 * MIB, 500 * MIB, 0)


def test_what_malloc_had_kept_free_is_told_apart() -> None:
    # given a second spike: malloc has kept 300 of the 500 MiB of the first
    judged = Jump(JumpKind.SPIKE, 41, 41, 850 * MIB, 350 * MIB)

    shown = _peaks(*[800] * 40, 1000).shown(judged)

    assert (shown.peak, shown.usual, shown.height, shown.kept) == (1000 * MIB, 800 * MIB, 500 * MIB, 300 * MIB)


def test_the_usual_is_that_of_the_steps_before() -> None:
    # given a level that changes at step 20, and a spike some steps later
    peaks = _peaks(*[500] * 20, *[700] * 20, 1200)

    shift = peaks.shown(Jump(JumpKind.SHIFT, 21, 26, 600 * MIB, 400 * MIB))
    spike = peaks.shown(Jump(JumpKind.SPIKE, 41, 41, 1100 * MIB, 600 * MIB))

    assert (shift.peak, shift.usual) == (700 * MIB, 500 * MIB)
    assert (spike.peak, spike.usual) == (1200 * MIB, 700 * MIB)


def test_a_jump_of_steps_that_are_not_remembered_stays_as_it_was_judged() -> None:
    judged = Jump(JumpKind.SPIKE, 41, 41, 850 * MIB, 350 * MIB)

    assert ResidentPeaks().shown(judged) == judged


def test_the_sentence_names_the_figures_of_the_samples() -> None:
    # given a process that holds 140 MiB, of which malloc has 170 MiB more free, and one step far above the others
    samples = [
        MemorySample(
            step=step,
            time=1000.0 + step,
            device="cpu",
            allocated=140 * MIB,
            reserved=310 * MIB,
            host_peak_rss=1100 * MIB if step == 45 else 527 * MIB,
            host_rss=500 * MIB,
            host_available=20 * GIB,
            device_total=24 * GIB,
        )
        for step in range(1, 61)
    ]

    findings = judge(samples)

    [spike] = [one for one in findings[:-1] if one.kind is FindingKind.SPIKE]
    assert (
        spike.message == "step 45 reached a resident peak of 1.07 GiB, +573.00 MiB (109 %) above the usual 527.00 MiB"
    )
    figures = {name: spike.evidence[name] for name in ("peak_bytes", "usual_bytes", "height_bytes")}
    assert figures == {"peak_bytes": 1100 * MIB, "usual_bytes": 527 * MIB, "height_bytes": 573 * MIB}
    assert findings[-1].message == spike.message
