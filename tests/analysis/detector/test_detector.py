"""The detector with evidence: suspicions out, conclusions in; channels beside the device; samples in batches."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest

from tbmem.analysis.detector.detector import Detector, judge
from tbmem.model.evidence import Channel, CodeLine, Conclusion, Outcome, WorkerCode
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import GIB, KIB, MIB

HEAP = 115 * MIB


def heap(levels: Sequence[int | None], **columns: Sequence[object]) -> list[MemorySample]:
    """Samples of a process on the CPU, a step of 10 ms each; other columns by name."""
    return [
        MemorySample(
            step=step,
            time=1000.0 + step / 100,
            device="cpu",
            allocated=level,
            reserved=None if level is None else level + 6 * MIB,
            host_rss=300 * MIB,
            host_available=8 * GIB,
            device_total=16 * GIB,
        )._replace(**{name: values[step - 1] for name, values in columns.items()})
        for step, level in enumerate(levels, start=1)
    ]


def leaking(steps: int, per_step: int = 64 * KIB, since: int = 0) -> list[int]:
    return [HEAP + per_step * max(step - since, 0) for step in range(steps)]


def feed(detector: Detector, samples: Sequence[MemorySample]) -> list[Finding]:
    return [finding for sample in samples for finding in detector.update(sample)]


def kinds(findings: Sequence[Finding]) -> list[str]:
    return [finding.kind.value for finding in findings]


def conclusion(outcome: Outcome, step: int = 40, **others: object) -> Conclusion:
    values = {"reason": "held by list 'losses' in train()", **others}
    return Conclusion(outcome=outcome, step=step, **values)  # type: ignore[arg-type]


# suspicion


def test_a_suspicion_is_raised_in_silence() -> None:
    # given
    detector = Detector(awaits_evidence=True)
    # when
    findings = feed(detector, heap(leaking(40)))
    # then
    assert kinds(findings) == ["suspect"]
    assert findings[0].severity is Severity.INFO
    (suspicion,) = detector.suspicions
    assert suspicion.channel is Channel.ALLOCATED
    assert suspicion.bytes_per_step == pytest.approx(64 * KIB, rel=0.01)
    assert suspicion.first_step <= 6
    assert suspicion.level == suspicion.base + suspicion.growth
    assert suspicion.base == pytest.approx(HEAP, abs=MIB)


def test_without_anybody_who_answers_nothing_is_suspected() -> None:
    detector = Detector()
    assert feed(detector, heap(leaking(200))) == []
    assert detector.suspicions == ()


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("per_step", [3 * KIB, 260 * KIB])
def test_a_leak_after_the_profilers_windows_is_suspected_in_time(every: int, per_step: int) -> None:
    # given: the default windows cover the steps 2 to 12, and leave 3 MiB behind
    levels = [level + (3 * MIB if step >= 13 else 0) for step, level in enumerate(leaking(60, per_step), start=1)]
    levels = [levels[step // every * every] for step in range(60)]
    samples = heap(levels, profiled=[2 <= step <= 12 for step in range(1, 61)])
    # when
    found = feed(Detector(awaits_evidence=True), samples)
    # then
    assert kinds(found) == ["suspect"]
    assert found[0].last_step <= 50
    assert found[0].evidence["bytes_per_step"] == pytest.approx(per_step, rel=0.35)


def test_rare_readings_do_not_hide_a_leak() -> None:
    # given: reading is dear, so that every sixth step is read
    levels: list[int | None] = [level if step % 6 == 0 else None for step, level in enumerate(leaking(90))]
    # when / then
    assert kinds(feed(Detector(awaits_evidence=True), heap(levels))) == ["suspect"]


def test_growth_that_falls_back_is_suspected_no_more() -> None:
    # given
    detector = Detector(awaits_evidence=True)
    # when
    findings = feed(detector, heap([*leaking(48), *[HEAP] * 12]))
    # then
    assert kinds(findings) == ["suspect", "dismissed"]
    assert "fell back" in findings[1].message
    assert detector.suspicions == ()


def test_what_is_suspected_and_certain_in_steps_that_are_judged_together_waits_for_evidence() -> None:
    # given steps of a millisecond, of which a second's are judged at once
    samples = heap(leaking(1200))
    detector = Detector(awaits_evidence=True)
    # when / then: nobody could look at the growth before their end
    assert kinds(detector.update_all(samples[:1000])) == ["suspect"]
    # and if nobody does after it, it is a leak without evidence
    assert kinds(detector.update_all(samples[1000:])) == ["leak"]


# conclusions


def suspicious(steps: int = 400, per_step: int = 64 * KIB) -> tuple[Detector, list[MemorySample]]:
    """A detector that suspects a leak at step 40, and the samples that follow."""
    samples = heap(leaking(steps, per_step))
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:40])
    assert len(detector.suspicions) == 1
    return detector, samples[40:]


def test_what_is_confirmed_is_a_leak_with_all_that_is_known() -> None:
    # given
    detector, after = suspicious()
    (suspicion,) = detector.suspicions
    drawn = conclusion(
        Outcome.CONFIRMED,
        cause="a graph that was never freed",
        advice="use loss.item()",
        share=0.98,
        evidence={"holder": "losses"},
    )
    # when
    (leak,) = detector.conclude(suspicion, drawn)
    # then
    assert leak.kind is FindingKind.LEAK
    assert leak.severity is Severity.CRITICAL
    for words in ("held by list 'losses'", "a graph that was never freed", "98 %", "out of memory in ~"):
        assert words in leak.message
    assert "no evidence" not in leak.message
    assert leak.advice == "use loss.item()"
    assert leak.evidence["holder"] == "losses"
    assert leak.evidence["share"] == 0.98
    assert detector.suspicions == ()
    # and when it has doubled it is told again, with its holder, and stands at the end
    again = feed(detector, after)
    assert set(kinds(again)) == {"leak"}
    assert again[0].evidence["growth_bytes"] >= 1.9 * leak.evidence["growth_bytes"]
    assert again[0].evidence["holder"] == "losses"
    assert detector.verdict().kind is FindingKind.LEAK


def test_the_lasting_rate_is_without_what_was_taken_once() -> None:
    # given: caches fill by 4 KiB a step until step 30, and 400 bytes a step are kept from the first to the last
    levels = [HEAP + 4 * KIB * min(step, 30) + 400 * step for step in range(70)]
    detector = Detector(awaits_evidence=True)
    feed(detector, heap(levels))
    (suspicion,) = detector.suspicions
    # when / then
    assert suspicion.bytes_per_step > 4 * KIB
    assert detector.lasting_rate(suspicion) == pytest.approx(400, rel=0.1)


def test_what_the_device_itself_has_gained_while_a_suspicion_lasted() -> None:
    detector, _ = suspicious()
    suspicion = detector.suspicions[0]
    assert detector.allocated_growth(suspicion) == pytest.approx(suspicion.growth, rel=0.1)


def test_the_lasting_rate_of_what_goes_on_is_its_rate() -> None:
    detector, _ = suspicious()
    assert detector.lasting_rate(detector.suspicions[0]) == pytest.approx(64 * KIB)


def test_what_is_confirmed_and_falls_back_is_taken_back() -> None:
    # given
    detector, _ = suspicious()
    detector.conclude(detector.suspicions[0], conclusion(Outcome.CONFIRMED))
    # when
    findings = feed(detector, [each._replace(step=each.step + 40) for each in heap([HEAP] * 20)])
    # then
    assert kinds(findings) == ["growing"]
    assert detector.verdict().kind is not FindingKind.LEAK


@pytest.mark.parametrize(("lasting", "verdict"), [(False, "stable"), (True, "leak")])
def test_a_leak_that_has_ended_stands_only_if_it_is_of_no_use(lasting: bool, verdict: str) -> None:
    # given: a cache that is full at step 128
    samples = heap([HEAP + 64 * KIB * min(step, 128) for step in range(600)])
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:40])
    # when
    detector.conclude(detector.suspicions[0], conclusion(Outcome.CONFIRMED, lasting=lasting))
    feed(detector, samples[40:])
    # then
    assert detector.verdict().kind.value == verdict


def test_what_is_dismissed_is_logged_with_its_reason_and_grows_in_peace() -> None:
    # given
    detector, after = suspicious()
    # when
    (finding,) = detector.conclude(
        detector.suspicions[0], conclusion(Outcome.DISMISSED, reason="a deque with maxlen 400", ends_at=400)
    )
    # then
    assert (finding.kind, finding.severity) == (FindingKind.DISMISSED, Severity.INFO)
    assert "a deque with maxlen 400" in finding.message
    assert feed(detector, after) == []
    verdict = detector.verdict()
    assert verdict.kind is FindingKind.GROWING
    assert "a deque with maxlen 400" in verdict.message


def test_what_goes_on_beyond_its_bound_is_suspected_again() -> None:
    # given
    detector, after = suspicious()
    # when
    detector.conclude(detector.suspicions[0], conclusion(Outcome.DISMISSED, ends_at=100))
    findings = feed(detector, after)
    # then
    assert kinds(findings)[0] == "suspect"
    assert 130 < findings[0].last_step <= 160


@pytest.mark.parametrize(
    ("holder", "said"),
    [(None, " · investigated without a result: held by"), ("list 'losses' in train()", ") · held by")],
)
def test_what_stays_open_is_decided_by_patience(holder: str | None, said: str) -> None:
    # given
    detector, after = suspicious()
    # when
    opened = conclusion(Outcome.OPEN, evidence={"holder": holder})
    assert detector.conclude(detector.suspicions[0], opened) == ()
    findings = feed(detector, after)
    # then
    assert "leak" in kinds(findings)
    leak = next(finding for finding in findings if finding.kind is FindingKind.LEAK)
    assert leak.last_step <= 320
    assert f"{said} list 'losses' in train()" in leak.message


@pytest.mark.parametrize(
    ("per_step", "steps", "verdict"),
    [(0, 120, "growing"), (0, 320, "stable"), (1 * KIB, 320, "stable"), (8 * KIB, 320, "growing")],
)
def test_growth_that_has_levelled_off_is_growth_no_more(per_step: int, steps: int, verdict: str) -> None:
    # given caches that fill in the first hundred steps, by 5 MiB, and more or less that goes on
    levels = [HEAP + round(5 * MIB * (1 - 0.97**step)) + per_step * step for step in range(steps)]
    detector = Detector(awaits_evidence=True)
    feed(detector, heap(levels[:60]))
    (suspicion,) = detector.suspicions
    # when looks have found nothing
    detector.conclude(suspicion, conclusion(Outcome.OPEN, step=60, reason="nothing grows"))
    feed(detector, heap(levels)[60:])
    # then
    assert detector.verdict().kind.value == verdict


def test_a_conclusion_about_what_is_gone_changes_nothing() -> None:
    # given
    detector, _ = suspicious()
    (suspicion,) = detector.suspicions
    feed(detector, [each._replace(step=each.step + 40) for each in heap([HEAP] * 20)])
    # when / then
    assert detector.conclude(suspicion, conclusion(Outcome.CONFIRMED)) == ()
    assert detector.verdict().kind is not FindingKind.LEAK


# other channels


def test_what_malloc_does_not_show_is_found_in_the_resident_memory() -> None:
    # given: 200 KiB a step outside malloc
    samples = heap([HEAP] * 400, host_rss=[300 * MIB + 200 * KIB * step for step in range(400)])
    # when
    findings = judge(samples)
    # then
    assert findings[-1].kind is FindingKind.LEAK
    assert findings[-1].evidence["channel"] == "host"
    assert findings[-1].message.startswith("the resident memory of the process +200.00 KiB/step")


def test_what_malloc_shows_is_told_once() -> None:
    # given
    samples = heap(leaking(700), host_rss=[300 * MIB + 64 * KIB * step for step in range(700)])
    # when / then
    assert {finding.evidence["channel"] for finding in judge(samples)} == {"allocated"}


def episodes(steps: int, leak: int = 0) -> list[int]:
    """Levels of steps that end with the data of an episode alive, 7 KiB a move: the agent learns and plays longer."""
    dice = random.Random(3)
    lengths = [(15 + min(max(step - 500, 0), 900)) * dice.uniform(0.5, 1.8) for step in range(steps)]
    return [HEAP + round(7 * KIB * length) + leak * step for step, length in enumerate(lengths)]


def test_episodes_that_get_longer_are_no_leak_without_a_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "leak" not in kinds(judge(heap(episodes(2000))))
    # they would be without a look at how much the steps differ
    for limit in ("_SPREADS", "_WIDE_SPREADS"):
        monkeypatch.setattr(f"tbmem.analysis.detector.explanations.{limit}", 0.0)
    assert "leak" in kinds(judge(heap(episodes(2000))))


def test_a_leak_that_outgrows_what_steps_differ_by_is_one_without_a_holder_too() -> None:
    findings = judge(heap(episodes(2000, leak=16 * KIB)))

    (leak, *_) = [finding for finding in findings if finding.kind is FindingKind.LEAK]
    assert leak.last_step < 700
    assert findings[-1].kind is FindingKind.LEAK


def test_resident_memory_that_malloc_keeps_free_is_no_leak() -> None:
    # given: ever longer episodes, each freed at its end, which malloc's heap has grown for
    growth = [100 * KIB * step for step in range(900)]
    samples = heap(
        [HEAP] * 900,
        reserved=[HEAP + 6 * MIB + more for more in growth],
        host_rss=[300 * MIB + more for more in growth],
    )
    # when
    findings = judge(samples)
    # then
    assert FindingKind.LEAK not in {finding.kind for finding in findings}
    assert findings[-1].kind is FindingKind.GROWING
    assert "free in malloc's heap" in findings[-1].message


def test_a_leak_whose_last_steps_malloc_tells_late_has_no_spike_at_its_end() -> None:
    # given: what grew from step 205 on counts as free until malloc is read again, four steps before the end
    grown = [480 * KIB * step for step in range(250)]
    is_read = [not 205 <= step < 246 for step in range(250)]
    samples = heap(
        [HEAP + more if read else None for more, read in zip(grown, is_read, strict=True)],
        reserved=[HEAP + 150 * MIB if read else None for read in is_read],
        host_rss=[300 * MIB + more for more in grown],
        host_peak_rss=[301 * MIB + more for more in grown],
    )
    detector = Detector()
    # when
    findings = [*detector.update_all(samples), *detector.close()]
    # then
    assert "spike" not in kinds(findings)


def test_what_was_free_heap_is_no_reason_for_what_has_come_since() -> None:
    # given the same in a heap that is rarely read, and then a step that keeps far more than all of it
    steps = range(1400)
    growth = [100 * KIB * min(step, 1200) for step in steps]
    kept = [0 if step < 900 else 600 * MIB for step in steps]
    is_read = [step < 160 or step % 30 == 0 for step in steps]
    samples = heap(
        [HEAP + most if read else None for most, read in zip(kept, is_read, strict=True)],
        reserved=[HEAP + 6 * MIB + more if read else None for more, read in zip(growth, is_read, strict=True)],
        host_rss=[300 * MIB + more + most for more, most in zip(growth, kept, strict=True)],
    )
    # when
    verdict = judge(samples)[-1]
    # then
    assert verdict.kind is FindingKind.LEVEL_SHIFT
    assert verdict.message.startswith("since step 901 each step holds +600.00 MiB more")


def test_pages_that_a_recording_gave_back_and_the_program_uses_again_are_no_leak() -> None:
    # given: the heap is 66 MiB larger than what is resident of it, which comes back by 20 KiB a step
    free = HEAP + 66 * MIB
    before = heap([HEAP] * 3)
    recorded = [each._replace(profiled=True, reserved=free) for each in heap([HEAP] * 6)[3:]]
    resident = [300 * MIB + 20 * KIB * step for step in range(1000)]
    after = heap([HEAP] * 1000, reserved=[free] * 1000, host_rss=resident)[6:]
    # when
    findings = judge([*before, *recorded, *after])
    # then
    assert FindingKind.LEAK not in {finding.kind for finding in findings}


def test_episodes_that_get_longer_are_no_leak_where_looks_find_nothing() -> None:
    # given what is alive at a step's end, that of an episode, which no look finds in two steps alike
    nothing = {
        large: conclusion(Outcome.CONFIRMED if large else Outcome.OPEN, reason="neither Python nor torch holds it")
        for large in (False, True)
    }
    seen: dict[int, list[str]] = {}
    for leak in (0, 16 * KIB):
        detector = Detector(awaits_evidence=True)
        findings: list[Finding] = []
        # when
        for sample in heap(episodes(2000, leak=leak)):
            findings += detector.update(sample)
            for suspicion in detector.suspicions:
                findings += detector.conclude(suspicion, nothing[suspicion.growth >= 2 * MIB])
        seen[leak] = kinds(findings)
    # then
    assert "suspect" in seen[0]
    assert "leak" not in seen[0]
    assert "leak" in seen[16 * KIB]


def test_a_buffer_that_is_known_explains_growth_that_a_later_look_does_not() -> None:
    # given a replay buffer that fills, and a look in steps in which nothing was added
    detector, after = suspicious()
    buffer = conclusion(Outcome.DISMISSED, reason="ReplayBuffer.buffer fills", ends_at=60)
    detector.conclude(detector.suspicions[0], buffer)
    again = feed(detector, after[:80])
    assert kinds(again) == ["suspect"]
    # when
    detector.conclude(detector.suspicions[0], conclusion(Outcome.OPEN, reason="nothing was found"))
    findings = feed(detector, after[80:160])
    # then: it is looked into again once it has doubled
    assert not findings


def test_growth_that_is_certain_at_once_is_looked_at_first() -> None:
    # given: so many suspicions have come to nothing that nothing is suspected for a while
    def found(last: int) -> list[str]:
        detector = Detector(awaits_evidence=True)
        detector._feed.channels[Channel.ALLOCATED].growth._not_before = 1000
        return kinds(feed(detector, samples[:last]))

    samples = heap(leaking(500))
    steps = range(200, len(samples), 4)
    # when
    suspected = next(step for step in steps if "suspect" in found(step))
    certain = next(step for step in steps if "leak" in found(step))
    # then: steps enough for a look lie between them, in which a leak is not yet one
    assert 60 <= certain - suspected <= 80


def test_what_was_held_over_an_epoch_is_told_with_its_holder_when_it_is_free_again() -> None:
    # given a loss that is summed with its graph
    detector, _ = suspicious()
    holders = {"holders": [{"name": "list 'losses' in train()"}]}
    found = conclusion(Outcome.CONFIRMED, advice="use loss.item()", evidence=holders)
    detector.conclude(detector.suspicions[0], found)
    # when the sum begins anew
    (finding,) = feed(detector, [each._replace(step=each.step + 40) for each in heap([HEAP] * 20)])
    # then
    assert "are free again · held by list 'losses' in train()" in finding.message
    assert "not a leak" not in finding.message
    assert finding.advice == "use loss.item()"
    # and it is known for how long it was held
    assert detector.let_go == {"list 'losses' in train()": 39}


def test_a_host_leak_beside_a_stable_gpu_is_found() -> None:
    # given
    samples = [
        each._replace(device="cuda:0", peak_allocated=HEAP)
        for each in heap([HEAP] * 400, host_rss=[GIB + MIB * step for step in range(400)])
    ]
    # when / then
    assert judge(samples)[-1].evidence["channel"] == "host"


def on_a_gpu(levels: list[int], heaps: Sequence[int | None], **others: Sequence[object]) -> list[MemorySample]:
    return [
        each._replace(device="cuda:0", peak_allocated=each.allocated)
        for each in heap(levels, host_heap=heaps, **others)
    ]


def test_a_leak_of_a_few_kib_on_the_host_beside_a_stable_gpu_is_found() -> None:
    # given: malloc's figures are rationed, and resident memory grows with them
    heaps = [None if step % 3 else 200 * MIB + 8 * KIB * step for step in range(400)]
    resident = [GIB + 8 * KIB * step for step in range(400)]
    # when
    findings = judge(on_a_gpu([HEAP] * 400, heaps, host_rss=resident))
    # then
    assert findings[-1].kind is FindingKind.LEAK
    assert findings[-1].message.startswith("the process's memory on the host +8.00 KiB/step")
    assert {finding.evidence["channel"] for finding in findings} == {"heap"}


def test_what_tbmem_itself_records_on_the_host_is_not_judged() -> None:
    # given
    profiled = [100 <= step < 300 for step in range(400)]
    heaps = [200 * MIB + 40 * KIB * min(max(step - 100, 0), 200) for step in range(400)]
    # when / then
    assert judge(on_a_gpu([HEAP] * 400, heaps, profiled=profiled))[-1].kind is FindingKind.STABLE


def test_the_objects_of_tensors_that_a_gpu_keeps_are_told_once() -> None:
    # given
    detector = Detector(awaits_evidence=True)
    # when
    found = feed(detector, on_a_gpu(leaking(400), [200 * MIB + 4 * KIB * step for step in range(400)]))
    # then
    assert {finding.evidence["channel"] for finding in found} == {"allocated"}


def test_the_private_memory_goes_before_the_resident() -> None:
    # given: the resident memory grows by shared pages
    samples = heap([HEAP] * 400, host_rss=[GIB + MIB * step for step in range(400)], host_private=[200 * MIB] * 400)
    # when / then
    assert judge(samples)[-1].kind is FindingKind.STABLE


METHOD = CodeLine(file="/a/data.py", line=7, function="Images.__getitem__", text="def __getitem__(self, i):")
ADDS = CodeLine(file="/a/data.py", line=9, function="Images.__getitem__", text="self.decoded[i] = image")


def growing_workers(steps: int, per_second: int, readings: int = 1) -> list[MemorySample]:
    """Workers that are read so often a second, at a hundred steps a second."""
    every = 100 // readings
    private = [500 * MIB + per_second // readings * (step // every) for step in range(steps)]
    return heap([HEAP] * steps, workers_private=private, workers_rss=[None] * steps)


def test_workers_that_grow_are_found_however_many_steps_a_second_has() -> None:
    # given / when
    findings = judge(growing_workers(9000, 2 * MIB))
    # then
    assert findings[-1].kind is FindingKind.LEAK
    assert findings[-1].evidence["channel"] == "workers"
    assert "DataLoader worker" in findings[-1].advice
    assert "child processes" in findings[-1].message


def test_where_workers_grow_their_data_sets_method_is_named_once_and_for_all() -> None:
    # given: a loader that is gone at the end of the run
    answers = [WorkerCode(methods=(METHOD,))]
    detector = Detector(in_workers=lambda: answers.pop() if answers else WorkerCode())
    # when
    feed(detector, growing_workers(9000, 2 * MIB))
    # then
    place = (
        "it is in a DataLoader worker, which calls Images.__getitem__ at data.py:7  def __getitem__(self, i): the line"
    )
    assert place in detector.verdict().message


def test_lines_that_add_to_what_a_workers_data_set_keeps_are_named() -> None:
    # given
    detector = Detector(in_workers=lambda: WorkerCode(methods=(METHOD,), additions=(ADDS,)))
    # when
    feed(detector, growing_workers(9000, 2 * MIB))
    # then
    verdict = detector.verdict()
    assert "its data set keeps what data.py:9  self.decoded[i] = image adds (read from the source" in verdict.message
    assert verdict.evidence["line"]["line"] == 9
    assert "is not known" not in verdict.message


def test_workers_that_grow_for_too_short_a_time_are_named_too() -> None:
    # given: 20 readings, a second apart
    detector = Detector(in_workers=lambda: WorkerCode(methods=(METHOD,), additions=(ADDS,)))
    # when
    feed(detector, growing_workers(2000, 20 * MIB))
    # then
    verdict = detector.verdict()
    assert verdict.kind is FindingKind.GROWING
    assert "not long enough to call it a leak · it is in a DataLoader worker" in verdict.message
    assert "data.py:9  self.decoded[i] = image" in verdict.message


def test_workers_that_grow_in_a_run_of_ten_seconds_are_no_stable_run() -> None:
    # given: 20 readings, of workers that are gone when the verdict is asked for
    answers = [WorkerCode(methods=(METHOD,), additions=(ADDS,))]
    detector = Detector(in_workers=lambda: answers.pop() if answers else WorkerCode())
    # when
    feed(detector, growing_workers(1000, 20 * MIB, readings=2))
    # then
    verdict = detector.verdict()
    assert verdict.kind is FindingKind.GROWING
    assert "the private memory of the child processes grows by " in verdict.message
    assert "not long enough to call it a leak · it is in a DataLoader worker" in verdict.message


def test_children_whose_code_is_not_known_are_asked_for_once_while_they_climb() -> None:
    # given child processes that are no DataLoader workers, for which each time all objects are looked at
    asked: list[int] = []
    detector = Detector(in_workers=lambda: asked.append(1) or WorkerCode())  # type: ignore[func-returns-value]
    # when
    feed(detector, growing_workers(1000, 20 * MIB, readings=2))
    verdicts = [detector.verdict(), detector.verdict()]
    # then
    assert [verdict.kind for verdict in verdicts] == [FindingKind.GROWING] * 2
    assert len(asked) == 1


def test_workers_that_start_late_and_stay_as_they_are_are_stable() -> None:
    # given
    private = [0 if step < 300 else 500 * MIB for step in range(1000)]
    # when
    findings = judge(heap([HEAP] * 1000, workers_private=private, workers_rss=[None] * 1000))
    # then
    assert kinds(findings) == ["stable"]


def epochs_of_100(steps: int, leak: int = 0) -> list[int]:
    """A loss that is summed with its graph, 7 KiB a step; the first epoch's evaluation leaves 1.1 MiB behind."""
    return [HEAP + 7 * KIB * (step % 100) + (1126 * KIB if step >= 100 else 0) + leak * step for step in range(steps)]


def told_of_epochs(levels: Sequence[int]) -> tuple[Detector, list[Finding]]:
    detector = Detector(awaits_evidence=True)
    samples = heap(levels)
    findings = feed(detector, samples[:50])
    (suspicion,) = detector.suspicions
    findings += detector.conclude(suspicion, conclusion(Outcome.CONFIRMED, reason="held by tensor 'total'"))
    return detector, findings + feed(detector, samples[50:])


def test_what_comes_and_goes_has_ended_though_the_first_cycle_left_something_behind() -> None:
    # when
    detector, findings = told_of_epochs(epochs_of_100(400))
    # then: at the second fall that can be seen
    leak, ended, *_ = [finding for finding in findings if finding.kind is not FindingKind.SUSPECT]
    assert (leak.kind, ended.kind) == (FindingKind.LEAK, FindingKind.GROWING)
    assert 300 <= ended.last_step <= 320
    assert ended.evidence["growth_bytes"] == pytest.approx(99 * 7 * KIB, rel=0.1)
    assert "were kept until now and are free again · held by tensor 'total'" in ended.message
    assert detector.verdict().kind is FindingKind.STABLE


@pytest.mark.parametrize("leak", [KIB, 10 * KIB])
def test_a_leak_beside_what_comes_and_goes_is_one(leak: int) -> None:
    # when
    detector, findings = told_of_epochs(epochs_of_100(800, leak))
    # then
    assert FindingKind.GROWING not in {finding.kind for finding in findings}
    assert detector.verdict().kind is FindingKind.LEAK


def test_a_buffer_that_fills_is_told_before_what_malloc_keeps_free_around_it() -> None:
    # given a buffer that is full after 5,000 steps, between blocks that are freed
    alive, free = [HEAP + 16 * KIB * step for step in range(900)], [48 * KIB * step for step in range(900)]
    samples = heap(
        alive,
        reserved=[level + 6 * MIB + more for level, more in zip(alive, free, strict=True)],
        host_rss=[300 * MIB + level - HEAP + more for level, more in zip(alive, free, strict=True)],
    )
    detector = Detector(awaits_evidence=True)
    feed(detector, samples[:60])
    (suspicion,) = (each for each in detector.suspicions if each.channel is Channel.ALLOCATED)
    fills = Conclusion(outcome=Outcome.DISMISSED, step=60, reason="deque 'buffer' fills", ends_at=5000)
    detector.conclude(suspicion, fills)
    # when
    feed(detector, samples[60:])
    # then
    assert detector.verdict().kind is FindingKind.GROWING
    assert "deque 'buffer' fills" in detector.verdict().message


def test_of_several_that_grow_the_verdict_is_about_the_one_that_has_grown_most() -> None:
    # given: workers that grow by 400 MiB, and a process by some 20 in its last steps, beside malloc's heap, unevenly
    dice = random.Random(0)
    samples = [
        sample._replace(host_rss=300 * MIB + 100 * KIB * max(sample.step - 1800, 0) + dice.randrange(4 * MIB))
        for sample in growing_workers(2000, 20 * MIB)
    ]
    # when
    verdict = judge(samples)[-1]
    # then
    assert verdict.kind is FindingKind.GROWING
    assert verdict.evidence["channel"] == "workers"


# optimizer steps


@pytest.mark.parametrize("every", [2, 4, 32])
def test_gradient_accumulation_is_no_sawtooth_where_the_optimizer_is_known(every: int) -> None:
    # given: gradients of 40 MiB between two steps of the optimizer
    stepped = [step % every == 0 for step in range(1, 401)]
    levels = [HEAP + (0 if now else 40 * MIB) for now in stepped]
    # when / then
    assert kinds(judge(heap(levels, updated=stepped)))[-1] == "stable"


def test_a_leak_in_a_loop_without_optimizer_steps_is_found() -> None:
    # given: training, then evaluation for long
    levels = [*[HEAP] * 100, *leaking(500)]
    # when
    found = feed(Detector(awaits_evidence=True), heap(levels, updated=[step < 100 for step in range(600)]))
    # then
    assert "suspect" in kinds(found)


# spikes


def test_a_spike_that_is_held_until_the_next_step_is_exact() -> None:
    # given: 4 MiB for one step, as a whole validation set in one batch
    levels = [HEAP + (4 * MIB + 100 * KIB if step == 60 else 0) for step in range(100)]
    # when
    findings = judge(heap(levels))
    # then
    assert [finding.kind for finding in findings] == [FindingKind.SPIKE] * 2
    assert (findings[0].first_step, findings[0].last_step) == (61, 61)
    assert findings[0].evidence["height_bytes"] == 4 * MIB + 100 * KIB
    assert "(4 %)" in findings[0].message


@pytest.mark.parametrize(
    "levels",
    [
        [HEAP + (20 * MIB if step % 2 else 0) for step in range(200)],
        [HEAP + (40 * MIB if step % 4 != 3 else 0) for step in range(200)],
        [HEAP + MIB * (step % 16) for step in range(200)],
        [HEAP - step // 6 * MIB for step in range(200)],
    ],
    ids=["two tasks in turn", "accumulation", "a cache for each request", "pruning"],
)
def test_what_comes_and_goes_is_no_spike(levels: list[int]) -> None:
    findings = judge(heap(levels))
    assert kinds(findings) == ["stable"]


@pytest.mark.parametrize("heights", [(100, 100), (100, 60), (60, 100)])
def test_two_spikes_of_a_short_run_are_both_found(heights: tuple[int, int]) -> None:
    # given
    peaks = [300 * MIB] * 120
    peaks[40] += heights[0] * MIB
    peaks[83] += heights[1] * MIB
    # when
    findings = judge(heap([HEAP] * 120, host_peak_rss=peaks))
    # then, and the verdict is the higher one
    assert kinds(findings) == ["spike", "spike", "spike"]
    assert [finding.first_step for finding in findings[:2]] == [41, 84]  # a lower one when the run ends
    assert findings[2].evidence["height_bytes"] == max(heights) * MIB


def test_of_many_spikes_only_those_are_reported_that_are_higher() -> None:
    peaks = [300 * MIB] * 400
    for number, step in enumerate((40, 83, 131, 190, 301, 377)):
        peaks[step] += (100 + 50 * (number == 3)) * MIB
    assert [each.first_step for each in judge(heap([HEAP] * 400, host_peak_rss=peaks))[:-1]] == [41, 191]


def test_a_first_checkpoint_makes_no_verdict_once_the_beat_is_known() -> None:
    # given
    levels = [HEAP + (9 * MIB if step % 15 == 14 else 0) for step in range(150)]
    # when
    findings = judge(heap(levels))
    # then
    assert findings[-1].kind is FindingKind.STABLE
    assert findings[-1].evidence["period_steps"] == 15
    assert kinds(findings).count("spike") <= 1


def test_the_level_that_a_window_leaves_behind_is_neither_spike_nor_shift() -> None:
    # given
    levels = [HEAP + (30 * MIB if step > 60 else 0) for step in range(1, 201)]
    # when / then
    assert kinds(judge(heap(levels, profiled=[58 <= step <= 60 for step in range(1, 201)]))) == ["stable"]


# fragmentation


def fragmented(reserved: float, split: float) -> list[MemorySample]:
    return [
        MemorySample(
            step=step,
            time=float(step),
            device="cuda:0",
            allocated=20 * GIB,
            peak_allocated=40 * GIB,
            reserved=round(reserved * GIB),
            inactive_split=round(split * GIB),
            device_total=80 * GIB,
        )
        for step in range(1, 101)
    ]


@pytest.mark.parametrize(
    ("reserved", "split", "verdict"),
    [(60, 15, "fragmentation"), (41, 15, "stable"), (60, 1, "stable")],
    ids=["holes", "cache that was needed once", "whole segments that are free"],
)
def test_a_cache_is_not_called_fragmentation(reserved: float, split: float, verdict: str) -> None:
    findings = judge(fragmented(reserved, split))
    assert findings[-1].kind.value == verdict
    assert kinds(findings[:-1]) == (["fragmentation"] if verdict == "fragmentation" else [])


def test_fragmentation_is_told_in_the_figures_of_an_analysis() -> None:
    # given 60 GiB that are reserved, of which no more than 40 were in use at once, and 15 lie in pieces
    verdict = judge(fragmented(60, 15))[-1]

    assert verdict.message == (
        "20.00 GiB (33 % of 60.00 GiB that are reserved) were unused even at the peak: 15.00 GiB are fragmented, in"
        " gaps between used blocks that fit no request"
    )
    assert (verdict.evidence["never_used_bytes"], verdict.evidence["fragmented_bytes"]) == (20 * GIB, 15 * GIB)


# batches, memory


def mixed(steps: int, seed: int) -> list[MemorySample]:
    """Everything at once: noise, a leak, outliers, unread steps, windows, workers."""
    dice = random.Random(seed)
    samples = []
    for step in range(1, steps + 1):
        cuda = seed % 2 == 0
        unread = 0.6 if seed in (1, 3) else 0.02  # readings of a heap are rationed
        level = GIB + 200 * KIB * max(step - 200, 0) + dice.randrange(64 * KIB) + (300 * MIB if step % 97 == 0 else 0)
        samples.append(
            MemorySample(
                step=step,
                time=1000 + step / 50,
                device="cuda:0" if cuda else "cpu",
                allocated=None if dice.random() < unread else level,
                reserved=3 * GIB if cuda or dice.random() < 0.5 else None,
                peak_allocated=level + 100 * MIB + dice.randrange(MIB) if cuda else None,
                live_blocks=500 + step if cuda else None,
                inactive_split=2 * GIB if cuda else None,
                host_rss=2 * GIB + dice.randrange(MIB) + 40 * KIB * step,
                host_peak_rss=None if dice.random() < 0.5 else 2 * GIB + dice.randrange(2 * MIB) + 40 * KIB * step,
                host_available=10 * GIB - step // 100 * MIB,
                device_total=4 * GIB if cuda else 16 * GIB,
                workers_rss=GIB + step // 50 * MIB,
                profiled=300 <= step < 305,
                updated=None if seed % 3 else step % 4 == 0,
            )
        )
    return samples


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [3, 10, 64])
def test_together_the_same_is_found_as_one_by_one(seed: int, size: int) -> None:
    # given
    samples = mixed(900, seed)
    one, many = (Detector(awaits_evidence=True) for _ in range(2))
    # when
    singly = feed(one, samples)
    together = [
        finding for start in range(0, len(samples), size) for finding in many.update_all(samples[start : start + size])
    ]
    # then
    assert len(singly) > 3
    assert together == singly
    assert many.close() == one.close()
    assert many.verdict() == one.verdict()
    assert many.suspicions == one.suspicions
    assert many.update_all([]) == []


def test_a_channel_takes_less_than_64_kib_after_a_million_steps() -> None:
    # given: four series are judged, and noisy, so that every part has something to remember
    detector = Detector(awaits_evidence=True)
    dice = random.Random(0)
    base = MemorySample(
        step=0, time=0.0, device="cuda:0", host_rss=GIB, workers_rss=GIB, device_total=80 * GIB, reserved=60 * GIB
    )
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for start in range(0, 1_000_000, 500):
            # steps in leaps, so that a million pass in seconds: what is kept depends on their number alone
            samples = [
                base._replace(
                    step=start + at,
                    time=float(start + at),
                    allocated=40 * GIB + dice.randrange(GIB) + start * 1000,
                    peak_allocated=60 * GIB + dice.randrange(GIB),
                    live_blocks=dice.randrange(10**6),
                    host_rss=GIB + dice.randrange(GIB),
                    workers_rss=GIB + dice.randrange(GIB),
                )
                for at in range(1, 501, 10)
            ]
            detector.update_all(samples)
        del samples
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # then
    assert taken < 4 * 64 * KIB


@pytest.mark.parametrize("seed", range(5))
def test_episodes_that_get_longer_are_stable_where_readings_are_rare(seed: int) -> None:
    # given the state of an episode, 0.25 MiB for each of its steps, that is let go at its end: later ones last longer
    chance, levels = random.Random(seed), list[int]()
    while len(levels) < 1200:
        longest = max(1, round(chance.expovariate(60 / (120 + len(levels)))))
        levels += [HEAP + step * MIB // 4 for step in range(longest)]
    rare = [level if step < 160 or step % 24 == 0 else None for step, level in enumerate(levels)]
    detector = Detector()
    # when
    findings = feed(detector, heap(rare))
    # then
    assert kinds([*findings, detector.verdict()]) == ["stable"]


def test_the_verdict_on_a_leak_reaches_to_the_end_of_the_run() -> None:
    # given a leak that is followed in blocks of many steps
    levels = [HEAP + 100 * KIB * step for step in range(790)]
    detector = Detector()
    feed(detector, heap(levels))
    # when
    verdict = detector.verdict()
    # then its figures are those of the last four steps
    assert verdict.kind is FindingKind.LEAK
    assert levels[-8] <= verdict.evidence["floor_last_bytes"] <= levels[-1]


@pytest.mark.parametrize(("per_step", "verdict"), [(240 * KIB, "warmup"), (0, "stable")])
def test_a_short_run_that_rises_throughout_is_not_called_stable(per_step: int, verdict: str) -> None:
    # given a run of 26 steps, each of which keeps something, or none does
    detector = Detector()
    # when
    feed(detector, heap(leaking(26, per_step)))
    # then the first is too short for a verdict, which says by how much it rose
    finding = detector.verdict()
    assert finding.kind.value == verdict
    assert finding.message.startswith("rose from 115.23 MiB to 120.86 MiB in 25 evaluated" if per_step else "stable at")


def test_a_leak_in_a_heap_that_is_read_seldom_is_seen_in_the_resident_memory() -> None:
    # given 1 MiB a step that is kept, in a heap in which a recording has left room, and which is slow to read
    read = {*range(1, 22), 35, 37, 44, 92, 155}
    free, grown = HEAP + 260 * MIB, [max(step - 12, 0) * MIB for step in range(200)]
    recorded = [each._replace(profiled=True, reserved=free) for each in heap([HEAP] * 12)[3:]]
    levels = [HEAP + each for each in grown]
    after = heap(levels, reserved=[free] * 200, host_rss=[300 * MIB + each for each in grown])[12:]
    after = [each if each.step in read else each._replace(allocated=None, reserved=None) for each in after]
    detector = Detector(awaits_evidence=True)
    # when
    findings = feed(detector, [*heap([HEAP] * 3), *recorded, *after])
    # then it is suspected, once, and not said to be free, nor stable
    assert kinds(findings) == ["suspect"]
    assert [each.channel for each in detector.suspicions] == [Channel.HOST]
    assert detector.verdict().kind is FindingKind.GROWING


def test_two_long_batches_are_two_spikes_where_malloc_is_read_before_the_resident_memory() -> None:
    # given two steps whose memory malloc keeps for five steps; the resident memory is read a step later
    free, room, spikes = HEAP + 44 * MIB, 89 * MIB, (100, 240)

    def after(step: int) -> int:
        return min((step - spike for spike in spikes if step >= spike), default=1000)

    steps = range(1, 301)
    resident = [300 * MIB + 44 * MIB + (room if after(step) <= 5 else 0) for step in steps]
    recorded = [each._replace(profiled=True, reserved=free + 8 * MIB) for each in heap([HEAP] * 12)[3:]]
    samples = heap(
        [HEAP] * 300,
        reserved=[free + (room if after(step) < 5 else 0) for step in steps],
        host_rss=resident,
        host_peak_rss=[max(pair) for pair in zip(resident, [0, *resident], strict=False)],
    )
    # when
    findings = judge([*heap([HEAP] * 3), *recorded, *samples[12:]])
    # then
    assert [(each.kind.value, each.first_step) for each in findings[:-1]] == [("spike", 100), ("spike", 240)]
    assert findings[-1].kind is FindingKind.SPIKE


def test_a_spike_right_after_a_step_in_which_pages_came_back_is_seen() -> None:
    # given a recording that has given pages of the heap back: in step 16 they are used again while the heap shrinks
    resident = [360] * 12 + [342] * 3 + [356] * 60
    reserved = [157] * 12 + [165] * 3 + [157] * 60
    peaks = [1040 if step == 17 else level for step, level in enumerate(resident, start=1)]
    columns = {"host_rss": resident, "reserved": reserved, "host_peak_rss": peaks}
    samples = heap([118 * MIB] * 75, **{name: [value * MIB for value in values] for name, values in columns.items()})
    recorded = [each._replace(profiled=True) for each in samples[3:12]]
    # when
    findings = judge([*samples[:3], *recorded, *samples[12:]])
    # then
    assert [(each.kind.value, each.first_step) for each in findings[:-1]] == [("spike", 17)]
