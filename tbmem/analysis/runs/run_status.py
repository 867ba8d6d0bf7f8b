"""State of each rank of a run, read from its log, and the status of the whole run; every screen reads both here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from tbmem.analysis.detector.finding_text import risen_in_few_steps
from tbmem.analysis.detector.periodicity import belongs
from tbmem.analysis.detector.verdict_history import worst_spike
from tbmem.analysis.growth_rate import ENOUGH_STEPS
from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.config.schema import PatternsConfig
from tbmem.errors import ConfigError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import End, Header, LogGap, MonitorLog, Signal, gap_notes
from tbmem.model.run_summary import Peak
from tbmem.units import format_duration, parse_bytes

_MAX_FINDINGS = 200
_SILENT_SECONDS = 60.0  # time without a line after which a process that cannot be seen may have been killed
_MAX_NAMED_RANKS = 8
_VERDICT_ORDER = (FindingKind.OOM, FindingKind.LEAK, FindingKind.SPIKE, FindingKind.NEAR_CAPACITY)
_REPORTED_AGAIN = (FindingKind.LEAK, FindingKind.PERIODIC)  # when more is known


def standing(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that hold: the last report of each leak and period, none that was withdrawn, no spike of a period."""
    patterns = [finding for finding in findings if finding.kind is FindingKind.PERIODIC]
    last = {finding.subject: finding for finding in findings if finding.kind in _REPORTED_AGAIN}
    ends = [(at, finding) for at, finding in enumerate(findings) if finding.kind is FindingKind.GROWING]
    latest = [
        finding
        for at, finding in enumerate(findings)
        if last.get(finding.subject, finding) is finding
        and not any(at < end and _is_withdrawn(finding, growth) for end, growth in ends)
    ]
    return [finding for finding in latest if not any(_is_explained(finding, pattern) for pattern in patterns)]


def _is_withdrawn(leak: Finding, growth: Finding) -> bool:
    """Whether a later report about growth is of the same series: it has ended, so that the leak was none."""
    if leak.kind is not FindingKind.LEAK or (leak.rank, leak.device) != (growth.rank, growth.device):
        return False
    channel = leak.evidence.get("channel")
    return bool(growth.evidence.get("channel", channel) == channel)


def _is_explained(spike: Finding, pattern: Finding) -> bool:
    if spike.kind is not FindingKind.SPIKE or (spike.rank, spike.device) != (pattern.rank, pattern.device):
        return False
    members, period = pattern.evidence.get("member_steps"), pattern.evidence.get("period_steps")
    return bool(members and period and belongs(spike.first_step, members, period))


def latest(findings: Sequence[Finding]) -> list[Finding]:
    """The last finding of each kind on each device, newest first: a leak is reported again as it grows.

    Of spikes all: each is about a step of its own.
    """
    last = {
        (one.rank, one.device, one.kind, one.first_step if one.kind is FindingKind.SPIKE else None): one
        for one in findings
    }
    return sorted(last.values(), key=lambda finding: finding.last_step, reverse=True)


def spike_at(peak: Peak, findings: Iterable[Finding]) -> Finding | None:
    """The spike that a run's highest step was; ``None`` if it was none."""
    spikes = (
        one for one in findings if one.kind is FindingKind.SPIKE and (one.rank, one.device) == (peak.rank, peak.device)
    )
    return next((one for one in spikes if one.first_step <= peak.step <= one.last_step), None)


def _patterns_of(header: Header) -> PatternsConfig:
    """The patterns' section of the configuration; the default one where a log's header has none that fits."""
    try:
        return PatternsConfig(**((header.get("config") or {}).get("patterns") or {}))
    except (ConfigError, TypeError):  # of another version, or damaged
        return PatternsConfig()


class RankState:
    """One rank of a run: its devices, its findings, whether it has ended."""

    def __init__(self) -> None:
        self.header: Header = {}
        self.end: End | None = None
        self.signal: Signal | None = None
        self.is_alive: bool | None = None
        """Whether its process exists; set by the reader of the log, ``None`` where that cannot be known."""
        self.has_begun = False  # whether anything but the header has been logged
        self.skipped = 0
        """Records of its log that could not be read."""
        self.findings: list[Finding] = []
        self.gaps: list[LogGap] = []
        """Times of which the log may lack something."""
        self._devices: dict[str, DeviceHistory] = {}
        self._patterns = PatternsConfig()  # those of its configuration

    def add(self, piece: MonitorLog) -> None:
        """Add a piece of the log; with a header the run begins anew."""
        for header in piece.headers:
            self.header, self.findings, self.gaps, self._devices = header, [], [], {}
            self.end = self.signal = self.is_alive = None
            self.has_begun = False
            self._patterns = _patterns_of(header)
        for row in piece.rows:
            device = row.sample.device
            if device not in self._devices:
                if device != "cpu":
                    self._devices.pop("cpu", None)  # watched only until the accelerator was found
                self._devices[device] = DeviceHistory(device, row.sample.rank)
            self._devices[device].add(row)
        for finding in piece.findings:
            if finding.device in self._devices:
                self._devices[finding.device].add_finding(finding)
        self.findings = (self.findings + piece.findings)[-_MAX_FINDINGS:]
        self.has_begun = self.has_begun or bool(piece.rows or piece.findings or piece.windows)
        self.gaps = (self.gaps + piece.gaps)[-_MAX_FINDINGS:]
        self.end = piece.end or self.end
        self.signal = piece.signal or self.signal
        self.skipped += piece.damaged_lines

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be written, as far as is known."""
        return self.end is not None or self.signal is not None or self.is_alive is False

    @property
    def devices(self) -> Sequence[DeviceHistory]:
        """Its devices, each with at least one row."""
        return list(self._devices.values())

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.header.get("rank", 0)

    @property
    def step(self) -> int:
        """Last step that was logged and has ended."""
        return max((device.last.step for device in self.devices if device.last is not None), default=0)

    @property
    def last_time(self) -> float | None:
        """Unix time of the last row, in seconds."""
        return max((device.last.time for device in self.devices if device.last is not None), default=None)

    @property
    def until(self) -> float | None:
        """Unix time up to which it lasted, in seconds: its end, else its last row."""
        end: End = self.end or {}
        return end.get("time", self.last_time)

    def steps_per_second(self) -> float | None:
        """Speed of steps without a profiler; ``None`` where no duration is known."""
        seconds = (device.step_time.seconds for device in self.devices)
        return next((1 / known for known in seconds if known is not None), None)

    def verdict(self, device: str) -> FindingKind:
        """The verdict on a device: that of the run's end, else the one that its findings so far amount to."""
        final = self._final_verdict(device)
        return self._verdict_so_far(device) if final is None else final.kind

    def verdict_finding(self, device: str) -> Finding | None:
        """The finding behind the verdict on a device: that of the run's end, else the last of its kind.

        Of several spikes it is the worst. Where nothing was found so far, it says that.
        """
        if (final := self._final_verdict(device)) is not None:
            return final
        kind = self._verdict_so_far(device)
        return self.last(device, kind) or self._so_far(device, kind)

    def _so_far(self, device: str, kind: FindingKind) -> Finding | None:
        if kind is FindingKind.STABLE:
            goes_on = self.signal is None and self.is_alive is not False
            message = f"nothing was found up to step {self.step}, with which the log ends{' so far' * goes_on}"
        elif kind is FindingKind.WARMUP and (risen := self._risen_early(device)) is not None:
            message = risen_in_few_steps(*risen, self._devices[device].judged)
        else:
            return None
        return Finding(
            kind=kind,
            severity=Severity.INFO,
            device=device,
            rank=self.rank,
            first_step=self.step,
            last_step=self.step,
            message=message,
            evidence={},
        )

    def _risen_early(self, device: str) -> tuple[int, int] | None:
        patterns = self._patterns
        least, share = parse_bytes(patterns.min_growth), patterns.min_growth_percent / 100
        return self._devices[device].risen_early(least, share) if device in self._devices else None

    def growth_per_step(self, device: DeviceHistory) -> float | None:
        """Growth rate in bytes per step: as reported by its leak or growth, else that of its low-water mark."""
        findings = [self.verdict_finding(device.device)]
        if self.is_leaking(device.device):
            findings.append(self.last(device.device, FindingKind.LEAK))
        going_on = [finding for finding in findings if finding is not None and "ended_step" not in finding.evidence]
        rates = [finding.evidence.get("bytes_per_step") for finding in going_on]
        return next((float(rate) for rate in rates if rate is not None), device.growth_per_step())

    def last(self, device: str, kind: FindingKind) -> Finding | None:
        """The last finding of a kind about a device, of spikes the worst; ``None`` without one."""
        is_spike = kind is FindingKind.SPIKE
        # as the verdict of the end: without spikes that turned out to be of a period, and without evaluations
        reported = standing(self.findings) if is_spike else self.findings
        matches = [finding for finding in reported if finding.device == device and finding.kind is kind]
        if is_spike:
            matches = [spike for spike in matches if spike.severity is not Severity.INFO]
            return worst_spike(matches) if matches else None
        return matches[-1] if matches else None

    def _final_verdict(self, device: str) -> Finding | None:
        end: End = self.end or {}
        verdicts = map(Finding.from_dict, end.get("verdicts", ()))
        return next((verdict for verdict in verdicts if verdict.device == device), None)

    def is_leaking(self, device: str) -> bool:
        """Whether a leak was found and not withdrawn."""
        kinds = [finding.kind for finding in self.findings if finding.device == device]
        trends = [kind for kind in kinds if kind in (FindingKind.LEAK, FindingKind.GROWING)]
        return trends[-1:] == [FindingKind.LEAK]

    def _verdict_so_far(self, device: str) -> FindingKind:
        warmup = self._patterns.warmup_steps
        is_enough = device in self._devices and self._devices[device].judged - warmup >= ENOUGH_STEPS
        is_stable = is_enough and self._risen_early(device) is None
        kinds = [FindingKind.STABLE if is_stable else FindingKind.WARMUP]
        for finding in standing(self.findings):
            if finding.device not in (device, "") or finding.kind.is_quiet:
                continue
            if finding.severity is not Severity.INFO and finding.kind not in kinds:
                kinds.append(finding.kind)
        return next((kind for kind in _VERDICT_ORDER if kind in kinds), kinds[-1])


class Standing(str, Enum):
    """Status of a run or of a rank; of several ranks the first in this order counts for the run."""

    RUNNING = "running"
    STARTING = "starting"  # no step has been logged yet
    UNKNOWN = "unknown"
    """Nothing was logged for a minute, and the process cannot be seen from here, as on another machine."""
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"  # ended by an exception
    DIED = "died"  # the process is gone and logged no end: it was killed, or crashed
    TERMINATED = "terminated"  # ended by a signal
    ENDED = "ended"
    FILES = "files"  # there is no log, only recordings

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be written."""
        return self not in (Standing.RUNNING, Standing.STARTING, Standing.UNKNOWN)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Status of a run, or of one rank of it."""

    standing: Standing
    text: str  # for people: ``'ended by ValueError'``
    ended_by: str | None = None  # an exception or a signal
    detail: str = ""  # of an exception: ``': no labels · at train.py:31  raise ValueError(...)'``
    age: float | None = None  # seconds since the last line; ``None`` where no line has a time
    ranks: tuple[str, ...] = ()  # ranks whose status differs: ``'rank 1 killed or crashed: no end in its log'``

    @property
    def sentence(self) -> str:
        """The text, its detail and the ranks that differ: ``'running · rank 1 ended by ValueError'``."""
        return " · ".join((self.text + self.detail, *self.ranks))

    def to_dict(self) -> dict[str, Any]:
        """The status under the names that every JSON answer uses."""
        return {"status": self.standing.value, "status_text": self.sentence, "ended_by": self.ended_by}


def end_status(exception: str | None, out_of_memory: bool) -> RunStatus:
    """Status of a run that logged its own end."""
    if out_of_memory:
        cause = f" ({exception})" if exception else ""
        return RunStatus(Standing.OUT_OF_MEMORY, f"ran out of memory{cause}", exception)
    if exception:
        return RunStatus(Standing.FAILED, f"ended by {exception}", exception)
    return RunStatus(Standing.ENDED, "ended in order")


def _exception_detail(end: End) -> str:
    """Text and line of the exception that ended a run, where its log has them."""
    text, line = _printable(end.get("exception_text") or ""), _printable(end.get("exception_line") or "")
    return (f": {text}" if text else "") + (f" · at {line}" if line else "")


def _printable(text: str) -> str:
    """A program's own text without what a terminal obeys."""
    return "".join(character if character.isprintable() else "?" for character in text)


def rank_status(state: RankState, now: float) -> RunStatus:
    """Status of one rank; ``now`` is Unix time in seconds."""
    if state.end is not None:
        status = end_status(state.end.get("exception"), state.end.get("out_of_memory", False))
        # that of memory which ran out is in its own report
        return replace(status, detail=_exception_detail(state.end) if status.standing is Standing.FAILED else "")
    if state.signal is not None:
        name = state.signal.get("name") or "a signal"
        return RunStatus(Standing.TERMINATED, f"ended by {name}", name)
    last = state.last_time if state.last_time is not None else state.header.get("started")
    age = max(now - last, 0.0) if last is not None else None
    if state.is_alive is False:
        return RunStatus(Standing.DIED, "killed or crashed: no end in its log", age=age)
    is_silent = age is None or age > _SILENT_SECONDS
    silence = "nothing was logged" if age is None else f"nothing for {format_duration(age)}"
    if is_silent and state.is_alive is None:
        return RunStatus(Standing.UNKNOWN, f"unknown: {silence}", age=age)
    standing = Standing.RUNNING if state.has_begun else Standing.STARTING
    return RunStatus(standing, f"{standing.value}, {silence}" if is_silent else standing.value, age=age)


def run_status(states: Sequence[RankState], now: float) -> RunStatus:
    """Status of a run: the first in the order of ``Standing`` where its ranks differ, which are then named."""
    if not states:
        return RunStatus(Standing.FILES, "recordings only")
    order = list(Standing)
    statuses = [rank_status(state, now) for state in states]
    first = min(statuses, key=lambda status: (order.index(status.standing), status.age or 0.0))
    others: dict[str, list[int]] = {}
    for state, status in zip(states, statuses, strict=True):
        is_same = status.text == first.text if first.standing.is_over else status.standing is first.standing
        if not is_same and status.standing is not Standing.STARTING:
            others.setdefault(status.text, []).append(state.rank)
    ages = [status.age for status in statuses if status.age is not None]
    ranks = []
    for text, numbers in others.items():
        names = ", ".join(map(str, numbers[:_MAX_NAMED_RANKS])) + " …" * (len(numbers) > _MAX_NAMED_RANKS)
        ranks.append(f"rank{'s' * (len(numbers) > 1)} {names} {text}")
    return replace(first, age=min(ages, default=None), ranks=tuple(ranks))


def skipped_note(skipped: int) -> str:
    """What every screen says of records of a rank's log that could not be read."""
    return f"{skipped} damaged record{'' if skipped == 1 else 's'} of its log left out"


def status_notes(states: Sequence[RankState], now: float, done: str = "judged") -> list[str]:
    """Notes on each rank whose log has gaps, or that did not end in order: its figures reach only as far as its log."""
    skipped = [f"rank {state.rank}: {skipped_note(state.skipped)}" for state in states if state.skipped]
    pairs = [(state, rank_status(state, now)) for state in states]
    broken = [(state, status) for state, status in pairs if status.standing is not Standing.ENDED]
    ends = [
        f"rank {state.rank}: {status.text}; it is {done} up to step {_last_step(state, status)}"
        for state, status in broken
    ]
    return [*skipped, *ends, *(note for state in states for note in gap_notes(state.gaps, state.rank))]


def _last_step(state: RankState, status: RunStatus) -> str:
    """The last step in its log, which of a process that was killed need not be the last that it ran."""
    lost = ", the last in its log: a second of steps may be missing" if status.standing is Standing.DIED else ""
    return f"{state.step}{lost}"
