"""How well the detector tells leaks, spikes and innocent runs apart, on counters alone, beside what else one could use.

    python benchmarks/detector.py [--quick] [--json] [--seed 2027]

Series come from benchmarks/families.py: 15 families of innocent runs and 11 of leaking ones, half of them with one
outlier. The figures are those of held-out seeds; the detector was tuned on seeds below 1000, which --seed refuses
unless --tuning is given. The detector is given no evidence: a leak is told by patience alone, which is what
`configs/light.yaml` does and the slower of its two ways. A leak counts as found if it is told after it began and
stands at the end; any leak told in an innocent run is a false alarm, even one that is taken back.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from families import FAMILIES, INNOCENT, LEAKING, Series, make
from harness import heading, table
from rivals import RULES, Rival, libraries

from tbmem.analysis.detector.detector import Detector
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.sample import MemorySample
from tbmem.units import format_count

HELD_OUT = 1000
"""Seeds from which on nothing was tuned."""
BATCH = 10
"""Samples that the monitor hands over at once in a loop of short steps."""
LIFE = 0.5
"""Share of a leaking run's life at which the forecast is compared with what came."""
MIN_HISTORY = 400
"""Steps of a leak that must have been seen by then."""
_LAZY, _LATE = 20, 100
"""First steps, in which optimizer state appears, and last steps, in one of which memory runs out."""


@dataclass
class Counts:
    """What came of many runs."""

    runs: int = 0
    leaking: int = 0
    found: int = 0
    false_runs: int = 0
    alarms: int = 0
    innocent_steps: int = 0
    delays: list[int] = field(default_factory=list)
    seconds: float = 0.0
    steps: int = 0

    def view(self) -> dict[str, Any]:
        """The figures, as plain JSON values."""
        told = self.found + self.false_runs
        delays = sorted(self.delays)
        return {
            "runs": self.runs,
            "precision": self.found / told if told else None,
            "recall": self.found / self.leaking if self.leaking else None,
            "false_alarms_per_million_steps": 1e6 * self.alarms / self.innocent_steps if self.innocent_steps else None,
            "delay_median": statistics.median(delays) if delays else None,
            "delay_p90": delays[int(0.9 * (len(delays) - 1))] if delays else None,
            "us_per_update": 1e6 * self.seconds / max(self.steps, 1),
        }


@dataclass
class Spikes:
    """What came of the outliers."""

    outliers: int = 0
    found: int = 0
    false: int = 0
    passes: int = 0
    """Told of a step with a validation pass, and not recognised as a beat."""
    taken_back: int = 0
    """Told at first, and taken back when the beat became known."""

    def view(self) -> dict[str, Any]:
        """The figures, as plain JSON values."""
        told = self.found + self.false
        return {
            **asdict(self),
            "recall": self.found / max(self.outliers, 1),
            "precision": self.found / max(told, 1),
            "precision_passes_counted": self.found / max(told + self.passes, 1),
        }


@dataclass
class Suspicions:
    """How early growth is suspected, and how often in vain."""

    delays: list[int] = field(default_factory=list)
    leaking: int = 0
    in_vain: int = 0
    innocent_steps: int = 0

    def view(self) -> dict[str, Any]:
        """The figures, as plain JSON values."""
        delays = sorted(self.delays)
        return {
            "suspected": len(delays) / max(self.leaking, 1),
            "delay_median": statistics.median(delays) if delays else None,
            "delay_p90": delays[int(0.9 * (len(delays) - 1))] if delays else None,
            "in_vain_per_thousand_steps": 1e3 * self.in_vain / max(self.innocent_steps, 1),
        }


class Ours:
    """All that is measured of our own detector."""

    def __init__(self) -> None:
        self.by_family: dict[str, Counts] = {}
        self.spikes = Spikes()
        self.suspicions = Suspicions()
        self.errors: dict[str, list[float]] = {}
        self.single = Counts()

    def take(self, series: Series, *, forecasts: bool) -> None:
        """Judge a series."""
        samples = series.samples()
        detector = Detector(awaits_evidence=True)
        batches = [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]
        findings: list[Finding] = []
        began = time.process_time()
        for batch in batches:
            findings += detector.update_all(batch)
        seconds = time.process_time() - began
        findings += detector.close()
        verdict = detector.verdict()
        counts = self.by_family.setdefault(series.family, Counts())
        leaks = [found.last_step for found in findings if found.kind is FindingKind.LEAK]
        _count(counts, series, leaks, verdict.kind is FindingKind.LEAK, seconds)
        self._count_spikes(series, findings)
        self._count_suspicions(series, findings)
        if forecasts and series.kept is not None:
            self._forecast(series, samples)

    def time_singly(self, series: Series) -> None:
        """Judge a series sample by sample, for the clock alone."""
        samples, detector = series.samples(), Detector()
        began = time.process_time()
        for sample in samples:
            detector.update(sample)
        self.single.seconds += time.process_time() - began
        self.single.steps += len(samples)

    def _count_spikes(self, series: Series, findings: list[Finding]) -> None:
        """Compare the spikes that stand at the end with the outliers."""
        spikes = self.spikes
        beats = [found for found in findings if found.kind is FindingKind.PERIODIC]
        told = [found for found in findings if found.kind is FindingKind.SPIKE]
        standing = [each for each in told if not any(_is_of(each, beat) for beat in beats)]
        spikes.taken_back += len(told) - len(standing)
        outliers = {index + 1 for index in series.spikes}
        found = {step for each in standing for step in range(each.first_step, each.last_step + 1)} & outliers
        spikes.outliers += len(outliers)
        spikes.found += len(found)
        for each in standing:
            steps = range(each.first_step, each.last_step + 1)
            if outliers & set(steps):
                continue
            if series.passes is not None and series.passes[each.first_step - 1 : each.last_step].any():
                spikes.passes += 1
            else:
                spikes.false += 1

    def _count_suspicions(self, series: Series, findings: list[Finding]) -> None:
        steps = [found.last_step for found in findings if found.kind is FindingKind.SUSPECT]
        if series.leak_from is None:
            self.suspicions.in_vain += len(steps)
            self.suspicions.innocent_steps += len(series.end)
            return
        self.suspicions.leaking += 1
        after = [step for step in steps if step > series.leak_from]
        if after:
            self.suspicions.delays.append(after[0] - series.leak_from)

    def _forecast(self, series: Series, samples: list[MemorySample]) -> None:
        """At half the life of the run, compare the forecast with the step at which memory really ran out.

        Runs count in which the leak is what fills the memory: what it adds in the second half is more than what the
        steps themselves vary by.
        """
        assert series.kept is not None and series.leak_from is not None
        full = len(samples)
        half = round(LIFE * full)
        varies = np.ptp(np.delete(series.peak - series.kept, series.spikes)[_LAZY:])
        if series.kept[-1] - series.kept[half] < varies or half < series.leak_from + MIN_HISTORY:
            return
        peaks = np.delete(series.peak, series.spikes)
        capacity = int(peaks[-_LATE:].max())
        dies = int(np.argmax(series.peak >= capacity)) + 1
        if dies < full - _LATE:
            return  # an outlier has ended it
        half = round(LIFE * dies)
        detector = Detector()
        detector.update_all([sample._replace(device_total=capacity) for sample in samples[:half]])
        verdict = detector.verdict()
        left = verdict.evidence.get("steps_left")
        if verdict.kind is FindingKind.LEAK and left is not None:
            self.errors.setdefault(series.family, []).append(abs(half + left - dies) / dies)


def _is_of(spike: Finding, beat: Finding) -> bool:
    period = beat.evidence["period_steps"]
    off = (spike.first_step - beat.first_step) % period
    return spike.first_step <= beat.first_step and min(off, period - off) <= max(1, min(0.06 * period, 4))


def _count(counts: Counts, series: Series, alarms: list[int], stands: bool, seconds: float) -> None:
    counts.runs += 1
    counts.seconds += seconds
    counts.steps += len(series.end)
    if series.leak_from is None:
        counts.innocent_steps += len(series.end)
        counts.false_runs += bool(alarms)
        counts.alarms += len(alarms)
        return
    counts.leaking += 1
    if alarms and alarms[0] <= series.leak_from:
        counts.false_runs += 1
    elif alarms and stands:
        counts.found += 1
        counts.delays.append(alarms[0] - series.leak_from)


def total(counts: list[Counts]) -> Counts:
    """All together."""
    added = Counts()
    for each in counts:
        for name, value in vars(each).items():
            setattr(added, name, getattr(added, name) + value)
    return added


def all_series(seed: int, runs: int, steps: int) -> Iterator[Series]:
    """Runs of every family; every other one has an outlier."""
    for number, family in enumerate(FAMILIES):
        dice = np.random.default_rng([seed, number, steps])
        for run in range(runs):
            yield make(family, dice, steps, outlier=bool(run % 2))


def rate(rival: Callable[[], Rival], seed: int, runs: int, steps: int) -> Counts:
    """The figures of a rival, which is asked until it first calls a leak."""
    counts = Counts()
    for series in all_series(seed, runs, steps):
        detector, alarms = rival(), []
        samples = series.samples()
        began = time.process_time()
        for sample in samples:
            if detector.update(sample):
                alarms.append(sample.step)
                break
        seconds = time.process_time() - began
        _count(counts, series, alarms, bool(alarms), seconds)
        counts.steps += (alarms[0] if alarms else len(samples)) - len(samples)
    return counts


def measure(seed: int, *, quick: bool) -> dict[str, Any]:
    """Everything, as plain JSON values."""
    ours = Ours()
    plan = [(10, 1500), (1, 10_000)] if quick else [(100, 1500), (12, 10_000), (1, 100_000)]
    lengths = {}
    for runs, steps in plan:
        print(f"{runs} runs of {steps} steps of each of {len(FAMILIES)} families ...", file=sys.stderr)
        here = Ours()
        for number, series in enumerate(all_series(seed, runs, steps)):
            here.take(series, forecasts=steps <= 10_000)
            if number % 10 == 0 and steps <= 10_000:
                here.time_singly(series)
        lengths[str(steps)] = total(list(here.by_family.values())).view()
        _merge(ours, here)
    detectors, missing = libraries()
    rivals = {}
    for name, rival in {**RULES, **detectors}.items():
        print(f"{name} ...", file=sys.stderr)
        rivals[name] = rate(rival, seed, 2 if quick else 20, 1500).view()
    every = total(list(ours.by_family.values()))
    errors = sorted(error for found in ours.errors.values() for error in found)
    return {
        "seed": seed,
        "tbmem": {**every.view(), "us_per_update_one_by_one": ours.single.view()["us_per_update"]},
        "by_length": lengths,
        "by_family": {family: counts.view() for family, counts in ours.by_family.items()},
        "spikes": ours.spikes.view(),
        "suspicions": ours.suspicions.view(),
        "forecast_error_at_half_life": {
            "median": statistics.median(errors) if errors else None,
            "p90": errors[int(0.9 * (len(errors) - 1))] if errors else None,
            "by_family": {family: statistics.median(found) for family, found in sorted(ours.errors.items())},
        },
        "rivals": rivals,
        "missing": missing,
    }


def _merge(into: Ours, other: Ours) -> None:
    for family, counts in other.by_family.items():
        into.by_family[family] = total([into.by_family.get(family, Counts()), counts])
    for part in ("spikes", "suspicions"):
        for name, value in vars(getattr(other, part)).items():
            setattr(getattr(into, part), name, getattr(getattr(into, part), name) + value)
    for family, errors in other.errors.items():
        into.errors.setdefault(family, []).extend(errors)
    into.single = total([into.single, other.single])


def report(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    header = ["", "precision", "recall", "false alarms / million steps", "delay, steps (90 %)", "µs / update"]
    rows = [_row("**tbmem**, no evidence", result["tbmem"])]
    rows += [_row(f"· runs of {format_count(int(steps))} steps", view) for steps, view in result["by_length"].items()]
    rows += [_row(name, view) for name, view in result["rivals"].items()]
    spikes, seen, ahead = result["spikes"], result["suspicions"], result["forecast_error_at_half_life"]
    ours = result["tbmem"]
    families = [
        [
            family,
            "leaks" if family in LEAKING else "",
            _number(view["recall"], 3) if family in LEAKING else _number(view["false_alarms_per_million_steps"], 2),
            _number(view["delay_median"], 0),
            _percent(ahead["by_family"].get(family)),
        ]
        for family, view in result["by_family"].items()
    ]
    lines = [
        table(header, rows),
        f"\nOne by one an update takes {ours['us_per_update_one_by_one']:.1f} µs; together, ten at a time,"
        f" {ours['us_per_update']:.1f} µs (processor time, mean over all families; a flat run takes less).",
        f"\nSpikes: precision {spikes['precision']:.3f}, recall {spikes['recall']:.3f} of {spikes['outliers']};"
        f" {spikes['passes']} more that stand are passes of a validation whose beat was not recognised (if they count"
        f" as false the precision is {spikes['precision_passes_counted']:.3f});"
        f" {spikes['taken_back']} were taken back when a beat became known.",
        f"\nSuspicions (silent): {100 * seen['suspected']:.0f} % of the leaks after {_number(seen['delay_median'], 0)}"
        f" steps (90 %: {_number(seen['delay_p90'], 0)}), in vain"
        f" {seen['in_vain_per_thousand_steps']:.2f} per thousand leak-free steps.",
        f"\nForecast at half life: median error {_percent(ahead['median'])}, 90 %: {_percent(ahead['p90'])}.\n",
        table(["family", "", "recall / false alarms per million", "delay", "forecast error"], families),
    ]
    if result["missing"]:
        lines.append(f"\nNot installed, so left out: {', '.join(result['missing'])} (dependency group `bench`).")
    return "\n".join(lines)


def _row(name: str, view: dict[str, Any]) -> list[str]:
    return [
        name,
        _number(view["precision"], 3),
        _number(view["recall"], 3),
        _number(view["false_alarms_per_million_steps"], 1),
        f"{_number(view['delay_median'], 0)} ({_number(view['delay_p90'], 0)})",
        _number(view["us_per_update"], 2),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer and shorter runs, about a minute")
    arguments.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    arguments.add_argument("--seed", type=int, default=2027)
    arguments.add_argument("--tuning", action="store_true", help="allow a seed on which the detector was tuned")
    given = arguments.parse_args()
    if given.seed < HELD_OUT and not given.tuning:
        arguments.error(f"seeds below {HELD_OUT} were used for tuning: choose another, or add --tuning")
    result = measure(given.seed, quick=given.quick)
    if given.json:
        print(json.dumps(result))
        return
    innocent = sum(family in INNOCENT for family in result["by_family"])
    print(heading(f"detector.py: {innocent} innocent and {len(LEAKING)} leaking families, seed {given.seed}"))
    print(report(result))


if __name__ == "__main__":
    main()
