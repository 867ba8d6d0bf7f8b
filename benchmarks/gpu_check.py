"""Every check of tbmem that needs a GPU, as a table, and a few small artefacts of that GPU.

    python benchmarks/gpu_check.py [OUT_FOLDER] [--without CHECK ...]

Needs torch, tbmem and what tbmem depends on; nothing is downloaded. On a simulated GPU, which computes nothing and has
no clock, the checks in ``NEED_A_CLOCK`` are left out and counted. Exit code 0: all checks held, 1: one did not, 2:
there is no GPU here. OUT_FOLDER (default ``benchmarks/gpu_artifacts``) gets one trace with its address book, one
memory snapshot, torch's own counters of three runs as JSON lines, estimates beside real peaks (``estimates.txt``), and
``environment.json``; below 8 MiB in all.

A check asks what a finding, a sample or a file says, never how a sentence is worded: sentences change, and who changes
them rarely has a GPU. ``tests/test_gpu_check.py`` runs most checks without one, with a stand-in for the allocator.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import gzip
import json
import logging
import math
import os
import pickle
import pickletools
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import tbmem
from tbmem.analysis.detector.detector import judge
from tbmem.config import load_config
from tbmem.demo import Fault
from tbmem.demo.training import DemoTraining, run_demo
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Category
from tbmem.model.files import (
    ADDRESS_BOOK_SUFFIX,
    SNAPSHOT_PROTOCOL,
    SNAPSHOT_SUFFIX,
    TRACE_SUFFIX,
    oom_report_name,
    snapshot_name,
)
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import read_monitor_log
from tbmem.model.run_summary import RunSummary
from tbmem.model.sample import MemorySample
from tbmem.rehearsal.environment import is_simulated
from tbmem.runtime.evidence.session import births_of
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.sampler import Counters
from tbmem.sources.survivors.history_backend import HistorySurvivors
from tbmem.units import MIB, format_bytes

DEFAULT_FOLDER = Path(__file__).parent / "gpu_artifacts"
NO_GPU = "gpu_check: there is no GPU that torch can use here (torch.cuda.is_available() is false)"
EXPANDABLE = "--under-expandable-segments"

_DEMO_STEPS = 60
_SNAPSHOT_LIMIT = 1 * MIB
_ARTEFACT_LIMIT = 8 * MIB
_STEP_LIMIT_US = 1000.0
_MATCH_LIMIT = 0.95
_CUDA_IN_TRACES, _HIP_IN_TRACES = 1, 6
_RESULTS = {True: "ok", False: "FAILED", None: "-"}


class CheckFailed(Exception):
    """A check did not hold; the message says what was found instead."""


def expect(holds: object, otherwise: str) -> None:
    """Fail the check with ``otherwise`` unless it holds."""
    if not holds:
        raise CheckFailed(otherwise)


@dataclass(frozen=True)
class Recorded:
    """What one profiler window with a memory snapshot left behind."""

    summary: RunSummary
    trace: Path
    book: Path
    snapshot: Path | None

    @cached_property
    def events(self) -> dict[str, Any]:
        """The trace as JSON."""
        with gzip.open(self.trace, "rt") as file:
            loaded: dict[str, Any] = json.load(file)
        return loaded


class Bench:
    """Where the checks run and write.

    Args:
        folder: Gets the artefacts.
        scratch: Gets everything else.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.memory_type = _HIP_IN_TRACES if torch.version.hip else _CUDA_IN_TRACES
        self._runs = 0

    @property
    def index(self) -> int:
        """Index of the device."""
        return self.device.index or 0

    @property
    def name(self) -> str:
        """The device as samples name it."""
        return str(self.device)

    def sections(self, **sections: Any) -> dict[str, Any]:
        """A configuration with only the monitor on, in a run folder of its own."""
        self._runs += 1
        defaults: dict[str, Any] = {
            "run": {"logdir": str(self.scratch), "name": f"run{self._runs}"},
            "monitor": {"log_every_n_steps": 1},
            "profiling": {"enabled": False},
            "snapshot": {"enabled": False},
            "output": {"console": False},
        }
        return {**defaults, **sections}

    def callback(self, **sections: Any) -> tbmem.MemoryCallback:
        """A callback with that configuration."""
        return tbmem.MemoryCallback(**self.sections(**sections))

    @cached_property
    def window(self) -> Recorded:
        """One recorded step of a tiny model, with snapshot; made once."""
        training = TinyTraining(self.device)
        training.step()
        profiling = {"wait": 1, "warmup": 1, "active": 1, "repeat": 1}
        with self.callback(profiling=profiling, snapshot={"max_entries": 20_000}) as memory:
            memory.watch(training.model, training.optimizer)
            for _ in range(5):
                training.step()
                memory.step()
        summary = summary_of(memory)
        expect(len(summary.traces) == 1, f"{len(summary.traces)} traces; problems: {summary.problems}")
        return Recorded(
            summary=summary,
            trace=Path(summary.traces[0]),
            book=Path(summary.address_books[0]),
            snapshot=Path(summary.snapshots[0]) if summary.snapshots else None,
        )


class TinyTraining:
    """Two linear layers and AdamW: small traces, small snapshots."""

    def __init__(self, device: torch.device, width: int = 256) -> None:
        torch.manual_seed(0)
        self.device = device
        self.width = width
        self.model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self) -> None:
        """One batch, made on the device."""
        inputs = torch.randn(128, self.width, device=self.device)
        loss = self.model(inputs).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class _RefusingUnpickler(pickle.Unpickler):
    """Reads plain data only: a snapshot is foreign input."""

    def find_class(self, module: str, name: str) -> Any:
        raise CheckFailed(f"the snapshot names {module}.{name}")


def load_snapshot(path: Path) -> dict[str, Any]:
    """A snapshot, read without trusting it."""
    with open(path, "rb") as file:
        loaded: dict[str, Any] = _RefusingUnpickler(file).load()
    return loaded


def pickle_protocol(path: Path) -> int:
    """The protocol that a pickle says it is written in."""
    for opcode, argument, _ in pickletools.genops(path.read_bytes()):
        if opcode.name == "PROTO":
            return int(str(argument))
    return 0


def summary_of(memory: tbmem.MemoryCallback) -> RunSummary:
    """The run's summary; no part of tbmem may have failed."""
    summary = memory.summary
    expect(summary is not None, "the callback has no summary")
    assert summary is not None
    expect(not summary.problems, f"parts of tbmem failed: {summary.problems}")
    return summary


def samples_of(summary: RunSummary, device: str) -> list[MemorySample]:
    """The samples of one device, one per step, as the live log kept them."""
    assert summary.monitor_log is not None
    return [row.sample for row in read_monitor_log(summary.monitor_log).rows if row.sample.device == device]


class _Kept(logging.Handler):
    """Keeps log records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What tbmem logs meanwhile, instead of on the console."""
    handler = _Kept()
    logger = logging.getLogger("tbmem")
    propagate, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield handler.records
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def warnings_about(setting: str, records: Sequence[logging.LogRecord]) -> list[str]:
    """The warnings among log records that name a setting."""
    messages = [record.getMessage() for record in records if record.levelno >= logging.WARNING]
    return [message for message in messages if setting in message]


def files_of(paths: Sequence[str | Path], ending: str) -> list[Path]:
    """The files of one kind, which their names tell (``tbmem.model.files``)."""
    return [Path(path) for path in paths if Path(path).name.endswith(ending)]


def check_counters(bench: Bench) -> str:
    kept = torch.ones(3_000_001, device=bench.device)
    counters = Counters(bench.name, HostMemory(workers=False))
    counters.sample(1, thorough=False)
    torch.ones(9_000_001, device=bench.device)
    expected = (
        torch.cuda.memory_allocated(bench.device),
        torch.cuda.memory_reserved(bench.device),
        torch.cuda.max_memory_allocated(bench.device),
        torch.cuda.max_memory_reserved(bench.device),
    )
    (sample,) = counters.sample(2, thorough=True)
    counters.close()
    found = (sample.allocated, sample.reserved, sample.peak_allocated, sample.peak_reserved)
    expect(found == expected, f"tbmem {found}, torch {expected}")
    free, total = torch.cuda.mem_get_info(bench.device)
    expect(sample.device_total == total, f"capacity {sample.device_total}, torch {total}")
    expect(sample.device_used is not None and sample.device_used >= expected[1], "less in use than reserved")
    for name in ("active", "inactive_split", "live_blocks", "alloc_retries", "ooms"):
        expect(getattr(sample, name) is not None, f"{name} is missing")
    del kept
    return f"allocated {format_bytes(expected[0])}, device {format_bytes(total - free)} of {format_bytes(total)}"


def check_step_peaks(bench: Bench) -> str:
    size = 256 * MIB
    base = torch.ones(1 * MIB, device=bench.device)
    told = []
    with bench.callback() as memory:
        memory.step()
        for number in range(6):
            if number == 3:
                torch.empty(size, dtype=torch.uint8, device=bench.device)
            told.append(torch.cuda.max_memory_allocated(bench.device))
            memory.step()
        level = torch.cuda.memory_allocated(bench.device)
    samples = samples_of(summary_of(memory), bench.name)[1:]
    found = [sample.peak_allocated for sample in samples]
    expect(found == told, f"peaks {found}, torch {told}")
    above = told[3] - level
    expect(size <= above < size + 4 * MIB, f"the spike is {above - size} bytes off")
    expect(told[4] == level, f"the step after it still has a peak of {told[4]}, the level is {level}")
    del base
    return f"a freed tensor of {format_bytes(size)} gives a peak of {format_bytes(above)} above the level"


@contextmanager
def _no_synchronisation(device: torch.device) -> Iterator[None]:
    """Whatever waits for the device raises; as before afterwards."""
    before = torch.cuda.get_sync_debug_mode()

    def refuse(*_: object, **__: object) -> None:
        raise CheckFailed("torch.cuda.synchronize or empty_cache was called")

    with (
        mock.patch.object(torch.cuda, "synchronize", refuse),
        mock.patch.object(torch.cuda, "empty_cache", refuse),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # torch says once that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def check_no_synchronisation(bench: Bench) -> str:
    training = TinyTraining(bench.device)
    steps = 200
    with bench.callback(monitor={"log_every_n_steps": 10}) as memory:
        for _ in range(steps):
            training.step()
            with _no_synchronisation(bench.device):
                memory.step()
    summary = summary_of(memory)
    expect(summary.steps == steps, f"{summary.steps} steps")
    number = torch.ones((), device=bench.device)
    try:
        with _no_synchronisation(bench.device):
            number.item()
    except RuntimeError:
        return f"{steps} steps; the same guard does catch .item()"
    raise CheckFailed("the guard does not even catch .item(), so the check proves nothing")


def check_step_does_not_wait(bench: Bench) -> str:
    TinyTraining(bench.device).step()
    with bench.callback() as memory:
        memory.step()
        torch.cuda.synchronize(bench.device)
        torch.cuda._sleep(1_000_000_000)  # type: ignore[no-untyped-call]  # cycles, about half a second
        is_busy = not torch.cuda.current_stream(bench.device).query()
        expect(is_busy, "torch.cuda._sleep does not keep the device busy, so the check proves nothing")
        began = time.perf_counter()
        memory.step()
        seconds = time.perf_counter() - began
        still_busy = not torch.cuda.current_stream(bench.device).query()
    torch.cuda.synchronize(bench.device)
    summary_of(memory)
    expect(still_busy, f"the device was idle after a step of {seconds * 1e3:.1f} ms")
    return f"{seconds * 1e6:.0f} µs with the device busy before and after, driver asked"


def check_cost(bench: Bench) -> str:
    training = DemoTraining(bench.device, 300, None)
    for number in range(1, 11):
        training.step(number)
    own: list[float] = []
    began = time.perf_counter()
    with bench.callback(monitor={"log_every_n_steps": 10}) as memory:
        for number in range(11, 311):
            training.step(number)
            before = time.perf_counter()
            memory.step()
            own.append(time.perf_counter() - before)
    whole = time.perf_counter() - began
    summary_of(memory)
    median, slow = statistics.median(own) * 1e6, statistics.quantiles(own, n=100)[98] * 1e6
    expect(median < _STEP_LIMIT_US, f"{median:.0f} µs a step")
    return f"median {median:.0f} µs, 99th percentile {slow:.0f} µs, {100 * sum(own) / whole:.2f} % of the loop"


def memory_events(recorded: Recorded, memory_type: int) -> list[dict[str, Any]]:
    """The trace's allocations and frees on one kind of device, in order of time."""
    events = [event for event in recorded.events["traceEvents"] if event.get("name") == "[memory]"]
    chosen = [event for event in events if event["args"].get("Device Type") == memory_type]
    return sorted(chosen, key=lambda event: float(event["ts"]))


def check_trace(bench: Bench) -> str:
    events = memory_events(bench.window, bench.memory_type)
    expect(events, f"no [memory] event of device type {bench.memory_type}")
    for key in ("Addr", "Bytes", "Device Id", "Total Allocated", "Total Reserved"):
        expect(all(key in event["args"] for event in events), f"an event without {key}")
    expect(all(event["args"]["Addr"] for event in events), "an event without an address")
    devices = {event["args"]["Device Id"] for event in events}
    expect(devices == {bench.index}, f"devices {devices}")
    allocations = sum(event["args"]["Bytes"] > 0 for event in events)
    expect(allocations, "no allocation among them")
    return f"{len(events)} events, {allocations} allocations"


def lifetimes(recorded: Recorded, memory_type: int) -> dict[int, list[tuple[float, float, int]]]:
    """By address: when it was allocated and freed (Unix ns), and how many bytes."""
    base = int(recorded.events.get("baseTimeNanoseconds") or 0)
    spans: dict[int, list[tuple[float, float, int]]] = {}
    for event in memory_events(recorded, memory_type):
        moment = base + round(float(event["ts"]) * 1000)
        address, size = int(event["args"]["Addr"]), int(event["args"]["Bytes"])
        known = spans.setdefault(address, [])
        if size > 0:
            known.append((moment, math.inf, size))
        elif known:
            known[-1] = (known[-1][0], moment, known[-1][2])
    return spans


def check_address_book(bench: Bench) -> str:
    spans = lifetimes(bench.window, bench.memory_type)
    notes = [note for note in AddressBook.load(bench.window.book).notes() if note.device == str(bench.device)]
    figures = []
    for category in (Category.ACTIVATION, Category.GRADIENT):
        wanted = [note for note in notes if note.category is category]
        expect(wanted, f"no {category.name} in the book of {len(notes)} notes")
        matched = sum(
            any(born <= note.time_ns <= died and note.bytes <= size for born, died, size in spans.get(note.address, ()))
            for note in wanted
        )
        share = matched / len(wanted)
        expect(share >= _MATCH_LIMIT, f"{category.name}: only {matched} of {len(wanted)} match an allocation")
        figures.append(f"{category.name.lower()} {matched}/{len(wanted)}")
    named = {note.name for note in notes if note.category is Category.PARAMETER}
    expect("0.weight" in named, f"parameters {named}")
    state = {note.name for note in notes if note.category is Category.OPTIMIZER_STATE}
    expect("0.weight.exp_avg" in state, f"optimizer state {state}")
    return ", ".join(figures)


def trace_entries(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """All allocator events of a snapshot."""
    return [entry for trace in snapshot["device_traces"] for entry in trace]


def check_window_snapshot(bench: Bench) -> str:
    path = bench.window.snapshot
    expect(path is not None, "no snapshot was written for the window")
    assert path is not None
    expect(pickle_protocol(path) == SNAPSHOT_PROTOCOL, f"pickle protocol {pickle_protocol(path)}")
    entries = trace_entries(load_snapshot(path))
    expect(entries, "device_traces is empty")
    functions = {frame["name"] for entry in entries for frame in entry.get("frames", ())}
    expect("step" in functions, f"no Python frame of the training among {sorted(functions)[:20]}")
    files = {frame["filename"] for entry in entries for frame in entry.get("frames", ())}
    expect(any(name.endswith("gpu_check.py") for name in files), "no frame of this file")
    expect({"alloc", "free_completed"} <= {entry["action"] for entry in entries}, "no alloc or no free_completed")
    return f"{len(entries)} events, {format_bytes(path.stat().st_size)}"


def history_is_on() -> bool:
    """Whether the allocator is recording."""
    return bool(torch._C._cuda_isHistoryEnabled())


def check_history_is_off(bench: Bench) -> str:
    expect(bench.window.snapshot is not None, "no snapshot was written, so nothing was on")
    expect(not history_is_on(), "torch says that history is still recorded")
    torch.ones(1000, device=bench.device)
    entries = trace_entries(torch.cuda.memory._snapshot())
    expect(not entries, f"{len(entries)} events were recorded after the window")
    return "nothing recorded after the window"


def check_users_history_stays(bench: Bench) -> str:
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=5000)
    try:
        torch.ones(1000, device=bench.device)
        with logged(), tbmem.record("inner", logdir=str(bench.scratch), max_entries=10):
            torch.ones(1000, device=bench.device)
        expect(history_is_on(), "tbmem.record() switched off a recording that was not its own")
        entries = len(trace_entries(torch.cuda.memory._snapshot()))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    expect(entries >= 4, f"only {entries} events are left of the user's recording")
    return f"the user's own recording goes on, {entries} events"


def check_overflow(bench: Bench) -> str:
    training = TinyTraining(bench.device)
    profiling = {"wait": 0, "warmup": 1, "active": 2, "repeat": 1}
    with logged() as of_window, bench.callback(profiling=profiling, snapshot={"max_entries": 10}) as memory:
        for _ in range(4):
            training.step()
            memory.step()
    summary_of(memory)
    expect(warnings_about("snapshot.max_entries", of_window), f"window: {[each.getMessage() for each in of_window]}")
    with logged() as of_record, tbmem.record("overflow", logdir=str(bench.scratch), max_entries=10):
        training.step()
    expect(warnings_about("max_entries", of_record), f"record: {[each.getMessage() for each in of_record]}")
    return "reported by the window and by tbmem.record()"


def check_snapshot_by_hand(bench: Bench) -> str:
    training = TinyTraining(bench.device)
    with logged(), bench.callback(snapshot={"history": "run"}) as memory:
        training.step()
        memory.step()
        path = memory.snapshot("by hand")
    expect(path is not None and path.is_file(), "no file")
    assert path is not None
    expect(path.name.endswith(snapshot_name("", "by hand")), f"the file is called {path.name}")
    snapshot = load_snapshot(path)
    expect(trace_entries(snapshot), "no events, although history=run")
    expect(str(path) in summary_of(memory).snapshots, "the summary does not name it")
    expect(not history_is_on(), "history is still on after the run")
    return f"{path.name.partition('.')[2]}, {len(trace_entries(snapshot))} events"


def _allocate_twelve_million(device: torch.device) -> None:
    torch.empty(12_345_678, dtype=torch.uint8, device=device)


def check_record(bench: Bench) -> str:
    with logged(), tbmem.record("record", logdir=str(bench.scratch), max_entries=1000) as recording:
        _allocate_twelve_million(bench.device)
    snapshots = files_of(recording.files, SNAPSHOT_SUFFIX)
    expect(len(snapshots) == 1, f"files {recording.files}")
    entries = trace_entries(load_snapshot(snapshots[0]))
    sizes = [entry["size"] for entry in entries if entry["action"] == "alloc" and _is_from_us(entry)]
    expect(len(sizes) == 1, f"{len(sizes)} allocations from that function among {len(entries)} events")
    expect(12_345_678 <= sizes[0] < 12_345_678 + 2 * MIB, f"its size is {sizes[0]}")
    expect(not history_is_on(), "history is still on")
    return f"the allocation is there with its line, {sizes[0]:,} bytes"


def _is_from_us(entry: dict[str, Any]) -> bool:
    return any(frame["name"] == _allocate_twelve_million.__name__ for frame in entry.get("frames", ()))


def _ask_for(size: int, device: torch.device | int | str) -> None:
    held_here = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    torch.empty(size, dtype=torch.uint8, device=device)
    del held_here


def check_out_of_memory(bench: Bench) -> str:
    training = TinyTraining(bench.device)
    total = torch.cuda.mem_get_info(bench.device)[1]
    memory = bench.callback(snapshot={"history": "run"})
    raised: BaseException | None = None
    with logged():
        try:
            with memory:
                for _ in range(2):
                    training.step()
                    memory.step()
                    with contextlib.suppress(torch.OutOfMemoryError):  # a request that is caught is no finding
                        torch.empty(2 * total, dtype=torch.uint8, device=bench.device)
                    training.step()
                    memory.step()
                _ask_for(2 * total, bench.device)
        except BaseException as error:
            raised = error
    expect(type(raised) is torch.OutOfMemoryError, f"the loop ended with {raised!r}")
    assert raised is not None
    expect(raised.__context__ is None, f"it was raised while handling {raised.__context__!r}")
    summary = summary_of(memory)
    found = [finding for finding in summary.findings if finding.kind is FindingKind.OOM]
    expect(len(found) == 1, f"findings {summary.findings}")
    evidence = found[0].evidence
    expect(found[0].device == bench.name, f"the finding is of {found[0].device}")
    expect(evidence["requested_bytes"] >= 2 * total, f"it asked for {evidence['requested_bytes']}")
    expect(evidence["reasons"][0]["cause"] == "capacity", f"why: {evidence['reasons']}")
    expect("_ask_for" in evidence["line"], f"the line is {evidence['line']!r}")
    # what only the frame that failed held shows that it was written before unwinding
    held = [each for each in evidence["holders"] if "held_here" in each["name"]]
    expect([each["bytes"] for each in held] == [64 * MIB], f"holders {evidence['holders']}")
    expect(summary.exception == "OutOfMemoryError", f"the summary says {summary.exception}")
    written = [path for path in files_of(summary.snapshots, SNAPSHOT_SUFFIX) if ".oom" in path.name]
    expect(written, f"snapshots {summary.snapshots}")
    reports = list(Path(summary.folder).glob(oom_report_name("*", "oom")))
    expect(len(reports) == 1, f"reports {reports}")
    actions = {entry["action"] for entry in trace_entries(load_snapshot(written[-1]))}
    expect({"alloc", "oom"} <= actions, f"the snapshot holds {actions}")
    expect(not history_is_on(), "history is still on")
    size = format_bytes(written[-1].stat().st_size)
    return f"exception unmasked, one finding with its reason and its holders, snapshot of {size}"


def _demo(bench: Bench, fault: Fault | None, wanted: FindingKind) -> str:
    config = load_config(**bench.sections())
    with logged():
        summary = run_demo(config, steps=_DEMO_STEPS, fault=fault, device=bench.device)
    assert summary is not None
    expect(not summary.problems, f"parts of tbmem failed: {summary.problems}")
    verdicts = [verdict for verdict in summary.verdicts if verdict.device == bench.name]
    expect([verdict.kind for verdict in verdicts] == [wanted], f"verdicts {verdicts}")
    return verdicts[0].message


def check_demo_none(bench: Bench) -> str:
    return _demo(bench, None, FindingKind.STABLE)


def check_demo_leak(bench: Bench) -> str:
    return _demo(bench, Fault.LEAK, FindingKind.LEAK)


def check_demo_spike(bench: Bench) -> str:
    return _demo(bench, Fault.SPIKE, FindingKind.SPIKE)


def check_near_capacity(bench: Bench) -> str:
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(bench.device)
    with logged(), bench.callback() as memory:
        torch.ones(1, device=bench.device)
        memory.step()
        held = torch.empty(int(0.9 * free), dtype=torch.uint8, device=bench.device)
        memory.step()
        del held
        memory.step()
    found = [each for each in summary_of(memory).findings if each.kind is FindingKind.NEAR_CAPACITY]
    expect(len(found) == 1, f"{len(found)} findings")
    percent = found[0].evidence["used_percent"]
    expect(percent >= 100 * 0.9 * free / total, f"{percent} % in use")
    return found[0].message


def check_births(bench: Bench) -> str:
    training = TinyTraining(bench.device)
    training.step()
    kept: list[torch.Tensor] = []
    births = births_of(bench.name)
    expect(births is not None, "births cannot be watched")
    assert isinstance(births, HistorySurvivors)
    births.begin(0)
    expect(torch._C._cuda_isHistoryEnabled(), "nothing is recorded")
    steps = 8
    for number in range(steps):
        training.step()
        kept.append(torch.ones(1 * MIB, dtype=torch.uint8, device=bench.device))
        births.mark(number)
    (bench.scratch / "births.snapshot.pickle").write_bytes(births.snapshot())
    report = births.finish()
    expect(not torch._C._cuda_isHistoryEnabled(), "memory history is still on")
    expect(report.sites, f"no site; notes: {report.notes}")
    assert report.sites is not None
    leaks = [site for site in report.sites if site.share == 1]
    expect(len(leaks) == 1, f"{len(leaks)} places leak: {leaks[:3]}")
    expect(leaks[0].bytes_per_step == MIB, f"{leaks[0].bytes_per_step} bytes per step")
    expect(leaks[0].stack and "kept.append" in leaks[0].stack[0].text, f"the line is {leaks[0].stack[:1]}")
    expect(load_snapshot(bench.scratch / "births.snapshot.pickle")["segments"], "the snapshot is empty")
    return f"{leaks[0].stack[0].file.rsplit('/', 1)[-1]}:{leaks[0].stack[0].line}, {report.seconds * 1e3:.1f} ms"


def check_births_under_a_curriculum(bench: Bench) -> str:
    layer = nn.Linear(256, 1024, device=bench.device)
    held = {}

    def step(rows: int) -> None:
        held["hidden"] = nn.functional.gelu(layer(torch.randn(rows, 256, device=bench.device)))
        held["hidden"].sum().backward()  # type: ignore[no-untyped-call]
        layer.zero_grad()

    step(256)  # libraries take their workspaces at the first use
    births = births_of(bench.name)
    assert births is not None
    births.begin(0)
    for number in range(8):
        step(256 + 32 * number)
        births.mark(number)
    report = births.finish()
    expect(report.sites is not None, f"no sites; notes: {report.notes}")
    leaks = [site for site in report.sites or () if site.share > 0.5]
    expect(not leaks, f"called a leak: {leaks[:3]}")
    expect(report.sizes_grow == 1, f"sizes grow by {report.sizes_grow}")
    return f"sizes grow, nothing survives, {report.seconds * 1e3:.1f} ms"


def check_cuda_graph(bench: Bench) -> str:
    static = torch.ones(4096, device=bench.device)
    side = torch.cuda.Stream(bench.device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(bench.device))
    with torch.cuda.stream(side):
        for _ in range(3):
            static * 2 + 1
    torch.cuda.current_stream(bench.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with bench.callback() as memory:
        memory.step()
        with torch.cuda.graph(graph):
            result = static * 2 + 1
            memory.step()
            memory.step()
        for value in range(5):
            static.fill_(value)
            graph.replay()
            memory.step()
    torch.cuda.synchronize(bench.device)
    summary = summary_of(memory)
    samples = samples_of(summary, bench.name)
    expect(summary.steps == len(samples) == 8, f"{summary.steps} steps, {len(samples)} samples")
    expect(result.shape == static.shape, f"the replayed graph gives a tensor of {tuple(result.shape)}")
    expect(all(sample.allocated for sample in samples), "a sample without allocated")
    return "captured with two steps inside, replayed five times"


def check_expandable_segments(bench: Bench) -> str:
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    command = [sys.executable, str(Path(__file__).resolve()), EXPANDABLE, str(bench.scratch / "expandable")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    expect(done.returncode == 0, lines[-1] if lines else f"exit code {done.returncode}")
    return lines[-1]


def under_expandable_segments(bench: Bench) -> str:
    """The part of that check which runs in a process of its own."""
    counters = check_counters(bench)
    check_step_peaks(bench)
    torch.cuda.empty_cache()
    with logged(), tbmem.record("expandable", logdir=str(bench.scratch)) as recording:
        TinyTraining(bench.device).step()
        held = torch.ones(5 * MIB, device=bench.device)
    (path,) = files_of(recording.files, SNAPSHOT_SUFFIX)
    snapshot = load_snapshot(path)
    del held
    expandable = sum(bool(segment.get("is_expandable")) for segment in snapshot["segments"])
    expect(expandable, "no segment is expandable: the setting had no effect")
    mapped = sum(entry["action"] == "segment_map" for entry in trace_entries(snapshot))
    return f"{expandable} expandable segments, {mapped} mappings recorded, {counters}"


_ON_THE_CPU = """
import sys, torch, tbmem
devices, scratch = sys.argv[1:]
model, kept = torch.nn.Linear(8, 8), []
sections = dict(run={"logdir": scratch}, monitor={"devices": devices}, output={"console": False})
with tbmem.MemoryCallback(profiling={"wait": 1, "warmup": 1, "active": 1, "repeat": 1}, **sections) as memory:
    for _ in range(80):
        model(torch.ones(4, 8)).sum().backward()
        kept.append(torch.ones(1 << 18))
        memory.step()
assert memory.summary and not memory.summary.problems, memory.summary
assert memory.summary.verdicts[0].evidence.get("holder"), memory.summary
with tbmem.record("cpu", logdir=scratch) as recording:
    model(torch.ones(4, 8))
if torch.cuda.is_initialized():
    sys.exit("tbmem made a CUDA context in a process that trains on the CPU")
"""


def check_asleep(bench: Bench) -> str:
    for devices in ("auto", bench.name):
        command = [sys.executable, "-c", _ON_THE_CPU, devices, str(bench.scratch / "asleep")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        lines = done.stderr.strip().splitlines() or ["no message"]
        expect(done.returncode == 0, f"monitor.devices={devices}: {lines[-1]}")
    return "training on the CPU finds its leak and makes no CUDA context, with devices=auto or named"


def check_profiler_overhead(bench: Bench) -> str:
    profiling = {"wait": 10, "warmup": 2, "active": 3, "repeat": 1}
    config = load_config(**bench.sections(profiling=profiling))
    with logged():
        summary = run_demo(config, steps=40, device=bench.device)
    assert summary is not None
    expect(not summary.problems, f"parts of tbmem failed: {summary.problems}")
    cost = summary.profiler
    expect(cost is not None and cost.slowdown is not None, "no cost was measured")
    assert cost is not None
    size = format_bytes(cost.trace_bytes)
    return f"recorded steps take {cost.slowdown:.2f} times as long; {size} written in {cost.writing_seconds:.2f} s"


def torchs_own_counters(bench: Bench, fault: Fault | None, steps: int) -> list[dict[str, int]]:
    """A demo run without tbmem: after each step what torch itself says."""
    gc.collect()
    torch.cuda.empty_cache()
    training = DemoTraining(bench.device, steps, fault)
    rows = []
    for number in range(1, steps + 1):
        torch.cuda.reset_peak_memory_stats(bench.device)
        training.step(number)
        rows.append(
            {
                "step": number,
                "allocated": torch.cuda.memory_allocated(bench.device),
                "reserved": torch.cuda.memory_reserved(bench.device),
                "peak": torch.cuda.max_memory_allocated(bench.device),
            }
        )
    return rows


def verdict_of(rows: Sequence[Mapping[str, int]], device: str) -> Finding:
    """What tbmem says of a run of which torch's counters are known, and nothing else."""
    samples = [
        MemorySample(
            step=row["step"],
            time=float(row["step"]),
            device=device,
            allocated=row["allocated"],
            reserved=row["reserved"],
            peak_allocated=row["peak"],
        )
        for row in rows
    ]
    return judge(samples)[-1]


def check_offline_verdicts(bench: Bench) -> str:
    wanted = {
        None: ("clean", FindingKind.STABLE),
        Fault.LEAK: ("leak", FindingKind.LEAK),
        Fault.SPIKE: ("spike", FindingKind.SPIKE),
    }
    # no evidence speaks for a leak in a series of counters, so that it takes all the patience there is
    steps = load_config(**bench.sections()).patterns.patience + _DEMO_STEPS
    for fault, (name, kind) in wanted.items():
        rows = torchs_own_counters(bench, fault, steps)
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (bench.folder / f"counters_{name}.jsonl").write_text(lines)
        verdict = verdict_of(rows, bench.name)
        expect(verdict.kind is kind, f"{name}: {verdict.kind.value}: {verdict.message}")
    return "clean, leak and spike told apart from torch's own counters"


def check_estimates(bench: Bench) -> str:
    script = Path(__file__).with_name("estimate_rehearsed.py")
    command = [sys.executable, str(script), str(bench.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    said = (done.stdout.strip() or done.stderr.strip()).splitlines() or ["nothing was printed"]
    expect(done.returncode == 0, said[-1])
    return said[-1]


def check_artefacts(bench: Bench) -> str:
    window = bench.window
    shutil.copyfile(window.trace, bench.folder / f"window{TRACE_SUFFIX}")
    shutil.copyfile(window.book, bench.folder / f"window{ADDRESS_BOOK_SUFFIX}")
    expect(window.snapshot is not None, "no snapshot was written for the window")
    assert window.snapshot is not None
    size = window.snapshot.stat().st_size
    expect(size < _SNAPSHOT_LIMIT, f"the snapshot has {format_bytes(size)} and is left out")
    shutil.copyfile(window.snapshot, bench.folder / f"window{SNAPSHOT_SUFFIX}")
    (bench.folder / "environment.json").write_text(json.dumps(environment(bench), indent=2) + "\n")
    total = sum(path.stat().st_size for path in bench.folder.rglob("*") if path.is_file())
    expect(total < _ARTEFACT_LIMIT, f"{format_bytes(total)} in {bench.folder}")
    return f"{format_bytes(total)} in {bench.folder}"


def environment(bench: Bench) -> dict[str, Any]:
    """What ran where."""
    properties = torch.cuda.get_device_properties(bench.device)
    return {
        "gpu": properties.name,
        "total_memory": properties.total_memory,
        "capability": list(torch.cuda.get_device_capability(bench.device)),
        "multiprocessors": properties.multi_processor_count,
        "devices": torch.cuda.device_count(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "allocator": torch.cuda.memory.get_allocator_backend(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "tbmem": tbmem.__version__,
    }


Check = Callable[[Bench], str]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("counters are torch's own", check_counters),
    ("per-step peak of a freed tensor", check_step_peaks),
    ("no synchronisation in step()", check_no_synchronisation),
    ("step() does not wait for the device", check_step_does_not_wait),
    ("cost of step()", check_cost),
    ("trace holds the GPU's allocations", check_trace),
    ("address book matches the trace", check_address_book),
    ("snapshot of a window", check_window_snapshot),
    ("history is off afterwards", check_history_is_off),
    ("the user's own history stays on", check_users_history_stays),
    ("ring overflow is reported", check_overflow),
    ("snapshot by hand", check_snapshot_by_hand),
    ("tbmem.record()", check_record),
    ("out of memory", check_out_of_memory),
    ("demo without a fault", check_demo_none),
    ("demo with a leak", check_demo_leak),
    ("demo with a spike", check_demo_spike),
    ("near capacity", check_near_capacity),
    ("births that survive", check_births),
    ("births under a curriculum", check_births_under_a_curriculum),
    ("CUDA graph capture", check_cuda_graph),
    ("expandable segments", check_expandable_segments),
    ("a GPU that is not used stays asleep", check_asleep),
    ("profiler overhead", check_profiler_overhead),
    ("verdicts from torch's own counters", check_offline_verdicts),
    ("estimates beside real peaks", check_estimates),
    ("artefacts", check_artefacts),
)


NEED_A_CLOCK = {
    "step() does not wait for the device": "the device must be busy for a while",
    "cost of step()": "a limit in microseconds, beside kernels that take their time",
}
"""Checks that only a real GPU can serve, and why."""


@dataclass(frozen=True)
class Row:
    """One line of the table; ``passed`` is ``None`` for a check that was left out."""

    check: str
    passed: bool | None
    figure: str


def run_checks(bench: Bench, checks: Sequence[tuple[str, Check]]) -> list[Row]:
    """Run the checks; one that fails does not stop the others."""
    rows = []
    for name, check in checks:
        if name in NEED_A_CLOCK and is_simulated():
            rows.append(Row(name, None, f"needs a real GPU: {NEED_A_CLOCK[name]}"))
            continue
        began = time.monotonic()
        try:
            rows.append(Row(name, True, check(bench)))
        except Exception as error:
            kind = "" if isinstance(error, CheckFailed) else f"{type(error).__name__}: "
            rows.append(Row(name, False, " ".join(f"{kind}{error}".split())[:400]))
        # as they come: whoever ends this early keeps what was seen
        told = f"{_RESULTS[rows[-1].passed]} in {time.monotonic() - began:.1f} s: {rows[-1].figure}"
        print(f"{name} ... {told}", file=sys.stderr, flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line each."""
    width = max(len("check"), *(len(row.check) for row in rows))
    lines = [f"{'check':{width}}  result  figure"]
    lines += [f"{row.check:{width}}  {_RESULTS[row.passed]:6}  {row.figure}" for row in rows]
    passed, left_out = (sum(row.passed is result for row in rows) for result in (True, None))
    lines.append(f"{passed} of {len(rows) - left_out} checks hold; left out, since they need a real GPU: {left_out}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; returns the exit code."""
    parser = argparse.ArgumentParser(description="Every check of tbmem that needs a GPU.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="gets the artefacts")
    parser.add_argument("--without", nargs="*", default=[], metavar="CHECK", help="names of checks to leave out")
    parser.add_argument(EXPANDABLE, action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(NO_GPU)
        return 2
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(chosen.folder, Path(scratch))
        if chosen.under_expandable_segments:
            print(under_expandable_segments(bench))
            return 0
        rows = run_checks(bench, [(name, check) for name, check in CHECKS if name not in chosen.without])
    print(table(rows))
    return 1 if any(row.passed is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
