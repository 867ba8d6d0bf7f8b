"""The sections of a configuration, as frozen dataclasses that check their rules; messages start with the full key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tbmem.errors import ConfigError
from tbmem.units import parse_bytes


def _require(holds: bool, key: str, rule: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{key} {rule} (got {value!r})")


def _at_least(section: str, values: object, lowest: Mapping[str, float]) -> None:
    for name, low in lowest.items():
        value = getattr(values, name)
        _require(value >= low, f"{section}.{name}", f"must be at least {low:g}", value)


def _check_sizes(section: str, values: object, *names: str) -> None:
    for name in names:
        try:
            parse_bytes(getattr(values, name))
        except ValueError as error:
            raise ConfigError(f"{section}.{name}: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Where a run's files go, and which ranks write some."""

    logdir: str = "runs"
    """Folder that holds all runs; the one to give to ``tensorboard --logdir``."""
    name: str | None = None
    """Name of this run's folder, numbered if it exists; by default the start time (or the job's id)."""
    ranks: int | str = 0
    """Ranks that are watched: a number, several as ``"0,8"``, or ``all`` (one sub-folder per rank)."""

    def __post_init__(self) -> None:
        _require(bool(self.logdir), "run.logdir", "must name a folder", self.logdir)
        named = self.name is None or self.name.strip(". ") != ""
        _require(named, "run.name", "must name a folder, or be null", self.name)
        inside = self.name is None or not (self.name.startswith(("/", "~")) or ".." in self.name.split("/"))
        _require(inside, "run.name", "must lie inside of run.logdir", self.name)
        _parse_ranks("run.ranks", self.ranks)

    def includes(self, rank: int) -> bool:
        """Whether ``rank`` is watched."""
        ranks = _parse_ranks("run.ranks", self.ranks)
        return ranks is None or rank in ranks

    @property
    def several(self) -> bool:
        """Whether more than one rank may write, so that each needs a sub-folder."""
        ranks = _parse_ranks("run.ranks", self.ranks)
        return ranks is None or len(ranks) > 1


def _parse_ranks(key: str, value: int | str) -> frozenset[int] | None:
    """The set of ranks that ``value`` means; ``None`` for all of them."""
    if value == "all":
        return None
    try:
        ranks = frozenset(int(part) for part in str(value).split(","))
    except ValueError:
        ranks = frozenset({-1})
    _require(min(ranks) >= 0, key, "must be a rank, ranks such as '0,8', or 'all'", value)
    return ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorConfig:
    """The live monitor: counters at every step."""

    enabled: bool = True
    """Whether counters are read at all."""
    log_every_n_steps: int = 10
    """Steps between two console lines, two points of a TensorBoard scalar and two lines of the log."""
    devices: str = "auto"
    """Devices to watch: ``auto`` (those that this process uses) or names such as ``"cuda:0,cuda:1"``."""
    peaks: str = "step"
    """``step``: the peak counter is reset after each step. ``run``: never; peaks are since the process began."""
    scalars: bool = True
    """Whether scalars are written for TensorBoard's own dashboards."""
    log: bool = True
    """Whether ``plugins/tbmem/monitor.jsonl`` is written."""
    workers: bool = True
    """Whether the memory of child processes (DataLoader workers) is read, once a second, by a thread."""

    def __post_init__(self) -> None:
        _at_least("monitor", self, {"log_every_n_steps": 1})
        _require(self.peaks in ("step", "run"), "monitor.peaks", "must be step or run", self.peaks)
        _require(bool(self.devices.strip()), "monitor.devices", "must be auto or device names", self.devices)


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternsConfig:
    """When memory is called leaking, spiking or close to the end."""

    enabled: bool = True
    """Whether the counters are judged at all."""
    warmup_steps: int = 1
    """First steps that are not judged: allocator, optimizer state and caches are still being set up."""
    patience: int = 300
    """Steps of growth before it is called a leak without evidence, unless the device will be full long before."""
    min_growth: int | str = "2 MiB"
    """Smallest growth over those steps that counts; ``0`` for any."""
    min_growth_percent: float = 0.02
    """The same in per cent of the level; the larger of the two counts."""
    spike_percent: float = 5.0
    """Smallest height of a step's peak above the usual one, in per cent of that, to be a spike."""
    held_spike_percent: float = 2.0
    """The same for what a step still holds when it has ended, which is counted exactly."""
    min_spike: int | str = "1 MiB"
    """Smallest height in bytes; the larger of the two counts."""
    min_resident_spike: int | str = "16 MiB"
    """The same for peaks of the resident memory, which serve on the CPU and are rough."""
    capacity_percent: tuple[float, ...] = (87.5, 93.75, 97.5)
    """Shares of the device at which memory is tight, needs action, and is about to run out."""

    def __post_init__(self) -> None:
        percentages = dict.fromkeys(("min_growth_percent", "spike_percent", "held_spike_percent"), 0)
        _at_least("patterns", self, {"warmup_steps": 0, "patience": 6, **percentages})
        _check_sizes("patterns", self, "min_growth", "min_spike", "min_resident_spike")
        levels = list(self.capacity_percent)
        ascending = len(levels) == 3 and levels == sorted(set(levels)) and levels[0] > 0
        rule = "must be three ascending percentages up to 100, such as [87.5, 93.75, 97.5]"
        _require(ascending and levels[-1] <= 100, "patterns.capacity_percent", rule, levels)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfilingConfig:
    """The windows of ``torch.profiler``: wait, warm up, record, and again."""

    enabled: bool = True
    """Whether any window is recorded."""
    skip_first: int = 0
    """Steps at the very start that belong to no cycle."""
    wait: int = 1
    """Steps at the start of each cycle in which nothing is on."""
    warmup: int = 2
    """Steps in which the profiler runs and throws its records away."""
    active: int = 3
    """Steps that are recorded, one trace file for all of them."""
    repeat: int = 2
    """How many cycles; 0 goes on until the run ends."""
    record_shapes: bool = True
    """Whether operators are recorded with the shapes of their inputs."""
    with_stack: bool = True
    """Whether operators and allocations are recorded with their Python stack."""
    address_book: bool = True
    """Whether each trace gets an address book, from which every allocation's category is known exactly."""

    def __post_init__(self) -> None:
        _at_least("profiling", self, {"skip_first": 0, "wait": 0, "warmup": 0, "repeat": 0})
        rule = "must be at least 1; to record nothing set profiling.enabled=false"
        _require(self.active >= 1, "profiling.active", rule, self.active)

    @property
    def cycle(self) -> int:
        """Steps of one cycle."""
        return self.wait + self.warmup + self.active

    @property
    def steps_needed(self) -> int:
        """Steps that a run must have for every window to be complete (one cycle if they repeat for ever)."""
        return self.skip_first + self.cycle * max(self.repeat, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotConfig:
    """Memory history of the device's allocator (CUDA, XPU); on other devices the trace serves instead."""

    enabled: bool = True
    """Whether snapshots are written."""
    history: str = "windows"
    """``windows``: recorded in the profiler's active steps. ``run``: in all steps, for an out-of-memory error."""
    max_entries: int = 100_000
    """Allocator events that the ring buffer keeps; older ones are lost."""
    on_oom: bool = True
    """Whether a snapshot is written when the loop ends with an out-of-memory error."""

    def __post_init__(self) -> None:
        _at_least("snapshot", self, {"max_entries": 1})
        _require(self.history in ("windows", "run"), "snapshot.history", "must be windows or run", self.history)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceConfig:
    """A few observed steps when growth is suspected: who holds it, and which line adds to it."""

    enabled: bool = True
    """Whether suspicions are looked into; without evidence a leak is called after ``patterns.patience`` steps."""
    max_windows: int = 4
    """How often in a run at most."""
    steps: int = 8
    """Steps that are watched each time (more where memory grows only every few steps)."""
    max_seconds: float = 1.0
    """What looking may cost in all, outside of the watched steps, in seconds each time."""
    births: bool = True
    """Whether allocations of the watched steps are followed, by torch's profiler or the allocator's history."""
    trace_lines: bool = True
    """Whether the line that adds to a container is traced while it runs; else it is read from the source."""
    confirm_after: int = 50
    """Steps of growth before a leak is called with evidence: a list that each epoch empties looks the same first."""
    min_leak: int | str = "1 KiB"
    """Bytes per step below which a leak is not worth a word (1 KiB is 1 GiB in a million steps)."""

    def __post_init__(self) -> None:
        _at_least("evidence", self, {"max_windows": 1, "steps": 4, "max_seconds": 0.0, "confirm_after": 1})
        _check_sizes("evidence", self, "min_leak")


@dataclass(frozen=True, kw_only=True, slots=True)
class OomConfig:
    """What is done when memory runs out, or the scheduler ends the job."""

    enabled: bool = True
    """Whether a report is written: what was requested, what was free, why it did not fit, who holds the memory."""
    host_percent: float = 95.0
    """Share of the host's or container's memory at which it is written once as a warning: the kernel gives none."""
    sigterm: bool = True
    """Whether SIGTERM writes what is left first; a handler of the program's own stays."""

    def __post_init__(self) -> None:
        rule = "must be a percentage above 0 and up to 100"
        _require(0 < self.host_percent <= 100, "oom.host_percent", rule, self.host_percent)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig:
    """What the console shows."""

    console: bool = True
    """Whether memory lines and findings are logged (logger ``tbmem``)."""
    ranks: int | str = 0
    """Ranks that speak on the console: a number, several as ``"0,8"``, or ``all``."""
    summary: bool = True
    """Whether the end of the run is summed up."""

    def __post_init__(self) -> None:
        _parse_ranks("output.ranks", self.ranks)

    def includes(self, rank: int) -> bool:
        """Whether ``rank`` speaks on the console."""
        ranks = _parse_ranks("output.ranks", self.ranks)
        return self.console and (ranks is None or rank in ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The whole configuration of a run."""

    enabled: bool = True
    """The one switch: ``false`` costs nothing and writes nothing."""
    run: RunConfig = field(default_factory=RunConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    patterns: PatternsConfig = field(default_factory=PatternsConfig)
    profiling: ProfilingConfig = field(default_factory=ProfilingConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    oom: OomConfig = field(default_factory=OomConfig)
    output: OutputConfig = field(default_factory=OutputConfig)


ENVIRONMENT_PREFIX = "TBMEM_"  # TBMEM_PROFILING_ACTIVE=5 sets profiling.active; TBMEM_ENABLED=0 sets enabled


def flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def schema_keys() -> list[str]:
    """Every key, in the schema's order."""
    return list(flatten(asdict(Config())))
