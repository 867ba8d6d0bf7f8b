"""The sections of a configuration, as frozen dataclasses that check their rules; messages start with the full key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tbmem.config.rules import (
    ASCENDING,
    ENCODABLE,
    INSIDE,
    LOCAL,
    NAMED,
    RANKS,
    SINKS,
    SIZE,
    Rule,
    at_least,
    one_of,
    ranks_of,
)
from tbmem.errors import ConfigError


def _checked(default: Any, *rules: Rule) -> Any:
    """Declare a field with its rules."""
    return field(default=default, metadata={"rules": rules})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Section:
    """Checks the rules of its fields."""

    def __post_init__(self) -> None:
        for each in fields(self):
            key = f"{type(self).__name__.removesuffix('Config').lower()}.{each.name}"
            value = getattr(self, each.name)
            shown = list(value) if isinstance(value, tuple) else value
            for rule, holds in each.metadata.get("rules", ()):
                try:
                    is_met = holds(value)
                except ValueError as error:
                    raise ConfigError(f"{key}: {error}") from error
                if not is_met:
                    raise ConfigError(f"{key} {rule} (got {shown!r})")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig(_Section):
    """Where a run's files go, and which ranks write some."""

    logdir: str = _checked("runs", ("must name a folder", bool), ENCODABLE, LOCAL)
    """Folder that holds all runs; the one to give to ``tensorboard --logdir``.

    Change it: to a disk that is large enough and outlives the job; a window's trace takes some MB.
    """
    name: str | None = _checked(None, NAMED, ENCODABLE, INSIDE)
    """Name of this run's folder, numbered if it exists; by default the start time (or the job's id).

    Change it: to find a run again by the name of its experiment.
    """
    ranks: int | str = _checked(0, RANKS)
    """Ranks that are watched: a number, several as ``"0,8"``, or ``all`` (one sub-folder per rank).

    Change it: to ``all`` where ranks may differ (pipelines, experts, uneven data); each rank costs the same.
    """
    max_waiting: int | str = _checked("256 MiB", SIZE)
    """Host memory for files that the disk has not taken yet; a window for which there is no room is left out.

    Unit: bytes. Change it: to more where windows were left out as the disk is slow, to less where memory is short.
    """
    wait_seconds: float = _checked(30.0, at_least(0))
    """Longest time that the end of a run waits for the disk; one line says what was not written by then.

    Unit: seconds. Change it: to more where traces are large and disks slow, to less if a job must end at once.
    """

    def includes(self, rank: int) -> bool:
        """Whether ``rank`` is watched."""
        ranks = ranks_of(self.ranks)
        return ranks is None or rank in ranks

    @property
    def several(self) -> bool:
        """Whether more than one rank may write, so that each needs a sub-folder."""
        return len(ranks_of(self.ranks) or (0, 1)) > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorConfig(_Section):
    """The live monitor: counters at every step."""

    enabled: bool = True
    """Whether counters are read at all.

    Change it: to ``false`` for profiler windows alone, without verdicts.
    """
    log_every_n_steps: int = _checked(10, at_least(1))
    """Steps between two console lines, two points of a TensorBoard scalar and two lines of the log.

    Unit: steps. Change it: to 1 for a short run, to 100 where steps take milliseconds; every step is judged anyway.
    """
    line_seconds: float = _checked(2.0, at_least(0))
    """Least seconds between two console lines about a device: of short steps the latest is shown. ``0``: each.

    Unit: seconds. Change it: to 0 to see every line, to 60 for the console of a long job.
    """
    sample_seconds: float = _checked(0.02, at_least(0))
    """Least seconds between two samples in a long loop of short steps; a peak is then that of all steps since the last.
    So soon come those of each fifth step and of steps that take 1.5 times as long as others, which are 2.5 times as far
    apart, at most 0.1 s.

    Unit: seconds. Change it: to 0.08 where steps take some milliseconds and each 0.1 % of their time counts.
    """
    devices: str = _checked("auto", ("must be auto or device names", lambda devices: devices.strip() != ""))
    """Devices to watch: ``auto`` (those that this process uses) or names such as ``"cuda:0,cuda:1"``.

    Change it: where a process also uses devices that do not matter.
    """
    peaks: str = _checked("step", one_of("step", "run"))
    """``step``: the peak counter is reset after each step. ``run``: never; peaks are since the process began.

    Change it: to ``run`` where the program reads ``torch.cuda.max_memory_allocated()`` over several steps.
    """
    scalars: bool = True
    """Whether scalars are written for TensorBoard's own dashboards.

    Change it: to ``false`` if another logger has the figures already.
    """
    log: bool = True
    """Whether ``plugins/tbmem/monitor.jsonl`` is written.

    Change it: to ``false`` if nothing may be written; the Memory tab, ``watch``, ``check`` and ``report`` need it.
    """
    workers: bool = True
    """Whether the memory of child processes (DataLoader workers) is read, once a second, by a thread.

    Change it: to ``false`` where child processes are not the training's own.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternsConfig(_Section):
    """When memory is called leaking, spiking or close to the end."""

    enabled: bool = True
    """Whether the counters are judged at all.

    Change it: to ``false`` to record counters without verdicts.
    """
    warmup_steps: int = _checked(1, at_least(0))
    """First steps that are not judged: allocator, optimizer state and caches are still being set up.

    Unit: steps. Change it: to more where the first steps compile, capture graphs or search for kernels.
    """
    patience: int = _checked(300, at_least(6))
    """Steps of growth before it is called a leak without evidence, unless the device will be full long before.

    Unit: steps. Change it: to less where runs are short, to more where a cache or a curriculum fills slowly.
    """
    min_growth: int | str = _checked("2 MiB", SIZE)
    """Smallest growth over those steps that counts; ``0`` for any.

    Unit: bytes. Change it: to more where growth of that size does not matter on your device.
    """
    min_growth_percent: float = _checked(0.02, at_least(0))
    """The same in per cent of the level; the larger of the two counts.

    Unit: per cent of the level. Change it: to more where the level itself is noisy.
    """
    spike_percent: float = _checked(5.0, at_least(0))
    """Smallest height of a step's peak above the usual one, in per cent of that, to be a spike.

    Unit: per cent of the usual peak. Change it: to more where lengths of samples differ much, and with them peaks.
    """
    held_spike_percent: float = _checked(2.0, at_least(0))
    """The same for what a step still holds when it has ended, which is counted exactly.

    Unit: per cent of the usual level. Change it: to more where a program often keeps something for one step.
    """
    min_spike: int | str = _checked("1 MiB", SIZE)
    """Smallest height in bytes; the larger of the two counts.

    Unit: bytes. Change it: to more where spikes of that size fit anyway.
    """
    min_resident_spike: int | str = _checked("16 MiB", SIZE)
    """The same for peaks of the resident memory, which serve on the CPU and are rough.

    Unit: bytes. Change it: to more on a CPU whose resident memory is noisy.
    """
    capacity_percent: tuple[float, ...] = _checked((87.5, 93.75, 97.5), ASCENDING)
    """Shares of the device at which memory is tight, needs action, and is about to run out.

    Unit: per cent of the capacity. Change it: to higher shares where a run is meant to fill the device.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfilingConfig(_Section):
    """The windows of ``torch.profiler``: wait, warm up, record, and again."""

    enabled: bool = True
    """Whether any window is recorded.

    Change it: to ``false`` in production, where counters and verdicts are enough (the preset ``light``).
    """
    skip_first: int = _checked(0, at_least(0))
    """Steps at the very start that belong to no cycle.

    Unit: steps. Change it: to record later than the start: a phase that begins at step 1000.
    """
    wait: int = _checked(1, at_least(0))
    """Steps at the start of each cycle in which nothing is on.

    Unit: steps. Change it: to more with ``repeat: 0``, so that windows are rare.
    """
    warmup: int = _checked(2, at_least(0))
    """Steps in which the profiler runs and throws its records away.

    Unit: steps. Change it: to 1 for short runs; with 0 the first recorded step includes the start of the profiler.
    """
    active: int = _checked(
        3, ("must be at least 1; to record nothing set profiling.enabled=false", lambda active: active >= 1)
    )
    """Steps that are recorded, one trace file for all of them.

    Unit: steps. Change it: to one step for a large model, to more to see what differs between steps.
    """
    repeat: int = _checked(1, at_least(0))
    """How many cycles; 0 goes on until the run ends.

    Unit: cycles. Change it: to 2 to compare windows, to 0 for a run whose memory changes over time.
    """
    keep: int = _checked(20, at_least(0))
    """Windows whose files are kept: named by a finding, first, highest, newest, with a finding, others; 0 keeps all.

    Unit: windows. Change it: to more, or to 0, where the disk has room for all windows of a run with ``repeat: 0``.
    """
    record_shapes: bool = True
    """Whether operators are recorded with the shapes of their inputs.

    Change it: to ``false`` for smaller traces; categories without an address book are less certain then.
    """
    with_stack: bool = True
    """Whether operators and allocations are recorded with their Python stack.

    Change it: to ``false`` for faster windows and smaller traces; lines are not known then.
    """
    address_book: bool = True
    """Whether each trace gets an address book, from which every allocation's category is known exactly.

    Change it: to ``false`` if nobody asks for categories or names.
    """
    max_records: int | str = _checked("64 MiB", SIZE)
    """Host memory that a window's records may take while it records, a tenth of what torch needs to collect them (some
    five steps of a model with 3,000 operators). A window that needs more ends early, or is left out.

    Unit: bytes. Change it: to more where a window was left out or ended early and the host has room.
    """

    @property
    def cycle(self) -> int:
        """Steps of one cycle."""
        return self.wait + self.warmup + self.active

    @property
    def steps_needed(self) -> int:
        """Steps that a run must have for every window to be complete (one cycle if they repeat for ever)."""
        return self.skip_first + self.cycle * max(self.repeat, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotConfig(_Section):
    """Memory history of the device's allocator (CUDA, XPU); on other devices the trace serves instead."""

    enabled: bool = True
    """Whether snapshots are written.

    Change it: to ``false`` if traces are enough, or if another tool records the history.
    """
    history: str = _checked("windows", one_of("windows", "run"))
    """``windows``: recorded in the profiler's active steps. ``run``: in all steps, for an out-of-memory error.

    Change it: to ``run`` for a job that runs out of memory (the preset ``oom``); it costs time at each allocation.
    """
    max_entries: int = _checked(100_000, at_least(1))
    """Allocator events that the ring buffer keeps; older ones are lost.

    Unit: events. Change it: to more where a recording begins too late; each event takes memory of the host.
    """
    on_oom: bool = True
    """Whether a snapshot is written when the loop ends with an out-of-memory error.

    Change it: to ``false`` where the disk has no room for it.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceConfig(_Section):
    """A few observed steps when growth is suspected: who holds it, and which line adds to it."""

    enabled: bool = True
    """Whether suspicions are looked into; without evidence a leak is called after ``patterns.patience`` steps.

    Change it: to ``false`` where no step may ever be slower than the others.
    """
    max_windows: int = _checked(4, at_least(1))
    """How often in a run at most.

    Unit: looks. Change it: to more for a run of days with several sources of growth.
    """
    steps: int = _checked(8, at_least(4))
    """Steps that are watched each time (more where memory grows only every few steps).

    Unit: steps. Change it: to more where one cycle of the program has more steps than that.
    """
    max_seconds: float = _checked(2.0, at_least(0))
    """What looking may cost in all, outside of the watched steps, in seconds each time.

    Unit: seconds. Change it: to more for a program of millions of objects whose holder was not found.
    """
    births: bool = True
    """Whether allocations of the watched steps are followed, by torch's profiler or the allocator's history.

    Change it: to ``false`` if another profiler is used all the time.
    """
    trace_lines: bool = True
    """Whether the line that adds to a container is traced while it runs; else it is read from the source.

    Change it: to ``false`` under a debugger or coverage tool, which trace lines themselves.
    """
    confirm_after: int = _checked(50, at_least(1))
    """Steps of growth before a leak is called with evidence: a list that each epoch empties looks the same first.

    Unit: steps. Change it: to more than an epoch's steps where each epoch empties what it collects.
    """
    min_leak: int | str = _checked("1 KiB", SIZE)
    """Bytes per step below which a leak is not worth a word (1 KiB is 1 GiB in a million steps).

    Unit: bytes per step. Change it: to more for short runs, where a small leak does not matter.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class OomConfig(_Section):
    """What is done when memory runs out, or the scheduler ends the job."""

    enabled: bool = True
    """Whether a report is written: what was requested, what was free, why it did not fit, who holds the memory.

    Change it: to ``false`` if another tool handles the error.
    """
    host_percent: float = _checked(
        95.0, ("must be a percentage above 0 and up to 100", lambda percent: 0 < percent <= 100)
    )
    """Share of the host's or container's memory at which it is written once as a warning: the kernel gives none.

    Unit: per cent. Change it: to less where one step takes more than the rest.
    """
    sigterm: bool = True
    """Whether SIGTERM writes what is left first; a handler of the program's own stays.

    Change it: to ``false`` where no handler of signals may be set.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig(_Section):
    """What the console shows, and which other loggers receive."""

    console: bool = True
    """Whether memory lines and findings are logged (logger ``tbmem``).

    Change it: to ``false`` where only TensorBoard is read.
    """
    ranks: int | str = _checked(0, RANKS)
    """Ranks that speak on the console: a number, several as ``"0,8"``, or ``all``.

    Change it: to ``all`` to see every rank, together with ``run.ranks``.
    """
    summary: bool = True
    """Whether the end of the run is summed up.

    Change it: to ``false`` where a program prints ``summary`` itself.
    """
    sinks: tuple[str, ...] = _checked((), SINKS)
    """Other loggers that receive scalars, findings and the summary: ``wandb``, ``mlflow``, ``comet``, ``prometheus``
    (with a port or file: ``prometheus:9464``), ``opentelemetry``. Each is an extra of tbmem, ``tbmem[wandb]``.

    Change it: to the logger that the run's other figures are in.
    """

    redact: bool = False
    """Whether host and user name, argument values and folders are left out; ``~`` and ``.`` stand for home and working
    folder.

    Change it: to ``true`` where logs, traces or reports are shown to people who should not see them.
    """

    def includes(self, rank: int) -> bool:
        """Whether ``rank`` speaks on the console."""
        ranks = ranks_of(self.ranks)
        return self.console and (ranks is None or rank in ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The whole configuration of a run."""

    enabled: bool = True
    """The one switch: ``false`` costs nothing and writes nothing.

    Change it: to ``false`` to leave the callback in the code and switch it off.
    """
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
