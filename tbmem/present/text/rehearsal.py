"""Formats a rehearsal as text lines, or as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tbmem.model.category import Phase, word_of
from tbmem.model.gpus import GPUS
from tbmem.model.rehearsal import DevicePeak, Largest, ProcessResult, Rehearsal, Trial
from tbmem.units import format_bytes, format_duration

_ROWS = 12
_LINES = 6


def rehearsal_view(result: Rehearsal) -> dict[str, Any]:
    """The rehearsal as plain values for JSON, all sizes in bytes."""
    process, _ = result.worst
    view = {**asdict(result), "fits": result.fits, "headroom": result.headroom, "worst_rank": process.rank}
    for each, plain in zip(result.processes, view["processes"], strict=True):
        for peak, values in zip(each.devices, plain["devices"], strict=True):
            values["headroom"] = peak.headroom
    return {**view, "peak_allocated": result.peak_allocated, "peak_reserved": result.peak_reserved}


def rehearsal_lines(result: Rehearsal) -> Iterator[str]:
    """The rehearsal as lines for a terminal."""
    process, device = result.worst
    several = len(result.processes) > 1 or process.world_size > 1
    rank = f", rank {process.rank} of {process.world_size}" if several else ""
    yield f"{result.program}: on {result.gpu}{rank}"
    yield ""
    yield _verdict(result, process, device)
    if result.needed is not None:
        yield _what_would_fit(result.needed)
    yield f"  peak allocated  {format_bytes(device.allocated):>12}   {_when(result, process, device)}".rstrip()
    yield f"  peak reserved   {format_bytes(device.reserved):>12}"
    yield f"  outside         {format_bytes(device.outside):>12}   CUDA's context, NCCL's buffers"
    if device.others:
        yield f"  other processes {format_bytes(device.others):>12}   on the same device"
    yield f"  capacity        {format_bytes(device.capacity):>12}"
    yield from _others(result)
    if result.out_of_memory_report:
        yield ""
        yield result.out_of_memory_report
    yield from _table("Peak by category", {word_of(name): size for name, size in result.by_category.items()})
    yield from _table("Peak by module", result.by_module)
    yield from _table("Peak by line", result.by_line, rows=_LINES)
    yield ""
    for note in result.notes:
        yield f"Note: {note}."
    if process.folder is not None:
        yield f"Recorded in {process.folder}: tbmem analyze, TensorBoard's Memory tab, pytorch.org/memory_viz."
    yield f"Rehearsed in {format_duration(result.seconds)}."


def _verdict(result: Rehearsal, process: ProcessResult, device: DevicePeak) -> str:
    if result.fits:
        return f"It fits, with {format_bytes(device.headroom)} left."
    step = f"in step {process.steps + 1}" if process.steps else "in the first step or before it"
    sentence = f"It does not fit: {device.device} runs out of memory {step}"
    if result.needed is None or result.headroom >= 0:
        return f"{sentence}."
    return f"{sentence}; {format_bytes(result.needed)} are needed, {format_bytes(-result.headroom)} more than it has."


def _what_would_fit(needed: int) -> str:
    """The smallest GPUs with that much memory, and the option that finds what fits the one at hand."""
    enough = sorted((gpu for gpu in GPUS.values() if gpu.total >= needed), key=lambda gpu: gpu.total)
    names = " and ".join(gpu.name for gpu in enough if gpu.total == enough[0].total)
    larger = f"enough for it: {names} (--gpu)" if enough else "no GPU that tbmem knows has that much"
    return f"  {larger}; --largest ARG=LOW..HIGH: finds the largest value of an argument that fits this one"


def _when(result: Rehearsal, process: ProcessResult, device: DevicePeak) -> str:
    if not process.steps:
        return ""
    if result.phase in ("", Phase.OTHER.name):
        return f"in step {device.step}" if device.step > 1 else "before the end of step 1"
    return f"in step {device.step}, in the {word_of(result.phase)}"


def _others(result: Rehearsal) -> Iterator[str]:
    """A line for each device of each process, where there are several."""
    rows = [(process, device) for process in result.processes for device in process.devices]
    if len(rows) < 2:
        return
    yield ""
    yield f"  {'rank':<5} {'device':<8} {'allocated':>12} {'reserved':>12} {'left':>12}"
    for process, device in rows:
        left = "out of memory" if process.out_of_memory else format_bytes(device.headroom)
        sizes = f"{format_bytes(device.allocated):>12} {format_bytes(device.reserved):>12}"
        yield f"  {process.rank:<5} {device.device:<8} {sizes} {left:>12}"


def _table(title: str, sizes: Mapping[str, int], rows: int = _ROWS) -> Iterator[str]:
    if not sizes:
        return
    yield ""
    yield f"{title}:"
    for name in list(sizes)[:rows]:
        yield f"  {name:<40} {format_bytes(sizes[name]):>12}"
    if rest := sum(list(sizes.values())[rows:]):
        yield f"  {f'{len(sizes) - rows} more':<40} {format_bytes(rest):>12}"


def trial_line(name: str, trial: Trial) -> str:
    """One value that was tried."""
    if not trial.fits:
        return f"  {name} {trial.value}: out of memory"
    return f"  {name} {trial.value}: reserves {format_bytes(trial.reserved)} of {format_bytes(trial.room)}"


def largest_view(answer: Largest) -> dict[str, Any]:
    """The search as plain values for JSON."""
    return {**asdict(answer), "result": None if answer.result is None else rehearsal_view(answer.result)}


def largest_lines(answer: Largest) -> Iterator[str]:
    """The largest value that fits, and the rehearsal with it."""
    if answer.value is None:
        yield f"No {answer.name} of the range fits, the smallest neither."
        return
    more = "" if answer.is_bounded else ", the end of the range"
    yield f"The largest {answer.name} that fits is {answer.value}{more}."
    if answer.result is not None:
        yield ""
        yield from rehearsal_lines(answer.result)
