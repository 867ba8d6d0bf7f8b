"""Runs as rows of a table that is sorted and filtered, and what one run has found, for ``tbmem watch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding
from tbmem.present.lines import SEPARATOR, device_label, finding_line
from tbmem.present.text.run_status import run_lines
from tbmem.sources.runs.gpu_processes import GpuProcess
from tbmem.units import format_bytes, format_signed

COLUMNS = ("run", "status", "step", "device", "verdict", "growth/step", "allocated", "peak", "headroom", "findings")
"""Titles; each is a key to sort by."""


class WatchRow(NamedTuple):
    """One device of a rank of a run."""

    key: str
    """Unique in the table."""
    run: str
    cells: tuple[str, ...]
    """As text, in the order of ``COLUMNS``."""
    values: tuple[str | float, ...]
    """What the cells are sorted by; a figure that is not known comes last from the highest down."""


def watch_rows(views: Sequence[Mapping[str, Any]]) -> list[WatchRow]:
    """A row for each device in the views of ``run_view``; a run without a device has one as well."""
    return [
        _row(view, rank, device)
        for view in views
        for rank in view["ranks"]
        for device in rank["devices"] or [_NO_DEVICE]
    ]


_NO_DEVICE: dict[str, Any] = dict.fromkeys(("device", "verdict", "growth_per_step", "allocated", "peak", "headroom"))


def _row(view: Mapping[str, Any], rank: Mapping[str, Any], device: Mapping[str, Any]) -> WatchRow:
    place = device_label(device["device"]) if device["device"] else ""
    place = f"rank {rank['rank']} {place}" if len(view["ranks"]) > 1 else place
    sizes = [device[name] for name in ("allocated", "peak", "headroom")]
    growth = device["growth_per_step"]
    status = "cannot be read" if view["errors"] else view["status_text"].split(SEPARATOR)[0]
    verdict, found = (device["verdict"] or "").replace("_", " "), len(view["findings"])
    words = (view["run"], status, place, verdict)
    return WatchRow(
        f"{view['run']} {rank['rank']} {device['device']}",
        view["run"],
        (
            *(view["run"], status, str(view["step"]), place, verdict),
            *("" if growth is None or abs(growth) < 1 else format_signed(growth),),
            *("" if size is None else format_bytes(size) for size in sizes),
            str(found),
        ),
        (
            *(*words[:2], view["step"], *words[2:]),
            *(float("-inf") if figure is None else figure for figure in (growth, *sizes)),
            found,
        ),
    )


def sorted_rows(rows: Sequence[WatchRow], column: int, *, falling: bool = False) -> list[WatchRow]:
    """Rows in the order of a column; equal ones keep theirs."""
    return sorted(rows, key=lambda row: row.values[column], reverse=falling)


def filtered_rows(rows: Sequence[WatchRow], words: str) -> list[WatchRow]:
    """Rows in which each of some words occurs, in any cell and any case."""
    wanted = words.lower().split()
    texts = (" ".join(row.cells).lower() for row in rows)
    return [row for row, text in zip(rows, texts, strict=True) if all(word in text for word in wanted)]


def run_details(view: Mapping[str, Any], width: int) -> list[Text]:
    """The run as ``tbmem watch`` prints it, and all of its findings with their advice, the newest first."""
    lines = run_lines(dict(view), width=width, findings=0)
    findings = [Finding.from_dict(each) for each in view["findings"]]
    for finding in reversed(findings):
        lines += [Text(), Text(finding_line(finding))]
    return lines if findings else [*lines, Text(), Text("no findings")]


def runs_by_pid(runs: Mapping[str, Sequence[RankState]], host: str) -> dict[int, str]:
    """Names of the runs whose processes are on this machine, by process id."""
    return {
        state.header["pid"]: name
        for name, states in runs.items()
        for state in states
        if state.header.get("host") == host and isinstance(state.header.get("pid"), int) and not state.has_ended
    }


def gpu_process_lines(processes: Sequence[GpuProcess], runs: Mapping[int, str]) -> list[str]:
    """A line for each process on a GPU: ``'GPU 0 · 12.40 GiB · pid 4711 python train.py · run first'``."""
    return [
        SEPARATOR.join(
            filter(
                None,
                (
                    f"GPU {process.gpu}",
                    "not known" if process.bytes is None else format_bytes(process.bytes),
                    f"pid {process.pid} {process.name}".rstrip(),
                    f"run {runs[process.pid]}" if process.pid in runs else "",
                ),
            )
        )
        for process in processes
    ]
