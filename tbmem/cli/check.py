"""The command ``tbmem check``: checks a run against limits, with an exit code for CI."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tbmem.analysis.runs.checks import Limits, check_run, levels_of, peaks_of
from tbmem.analysis.runs.run_status import run_status, status_notes
from tbmem.cli.arguments import AsJson
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.baseline import Baseline
from tbmem.model.files import write_file
from tbmem.model.unpacked_size import read_small
from tbmem.offline.live_logs import FollowedRun, read_one_run
from tbmem.present.text.check_report import gate_annotations, gate_junit, gate_lines, gate_view
from tbmem.sources.runs.catalog import later_namesake
from tbmem.units import format_bytes, parse_bytes


def command(
    path: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="Run folder, or its monitor.jsonl.")],
    newest: Annotated[bool, typer.Option("--newest", help="Of several runs in the folder, the last one.")] = False,
    max_peak: Annotated[str | None, typer.Option(metavar="SIZE", help="Maximum peak, such as 10GiB.")] = None,
    max_growth: Annotated[str | None, typer.Option(metavar="SIZE/step", help="Maximum growth: 1MiB/step.")] = None,
    no_leak: Annotated[bool, typer.Option("--no-leak", help="Fail if the verdict is a leak.")] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Fail if the run was killed, failed, goes on, or its log is damaged.")
    ] = False,
    baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="File of peaks and levels to compare.")] = None,
    tolerance: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Allowed increase over the baseline; 5% if not given.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write the baseline from this run.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    github: Annotated[bool | None, typer.Option(help="Print GitHub annotations; by default on GitHub Actions.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a run against limits; exit code 0 if all hold, 1 if one does not, 2 if the input is wrong."""
    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs --baseline FILE, which it writes")
    allowed = Limits().tolerance if tolerance is None else _share("--tolerance", tolerance)
    if tolerance is not None and (baseline is None or update_baseline):
        raise UsageError("--tolerance is of a comparison; it needs --baseline FILE, without --update-baseline")
    base = _read_baseline(baseline) if baseline is not None and not update_baseline else None
    limits = Limits(
        max_peak=_size("--max-peak", max_peak),
        max_growth=_size("--max-growth", max_growth, ending="/step"),
        no_leak=no_leak,
        complete=complete,
        baseline=None if base is None else base.peaks,
        baseline_levels=None if base is None else base.levels,
        tolerance=allowed,
    )
    if limits == Limits(tolerance=limits.tolerance) and not update_baseline:
        raise UsageError("nothing to check: give --max-peak, --max-growth, --no-leak, --complete or --baseline")
    run = read_one_run(path, newest=newest)
    now = time.time()
    results, notes = check_run(run.states, limits, now), [*_which(run, newest), *status_notes(run.states, now)]
    if baseline is not None and update_baseline:
        peaks = peaks_of(run.states)
        write_file(baseline, Baseline(peaks, levels_of(run.states)).to_json())
        summary = ", ".join(f"{place} {format_bytes(peak)}" for place, peak in peaks.items())
        has_own = any(device.peak and device.peak.own for state in run.states for device in state.devices)
        own = ", without what tbmem itself has added" if has_own else ""
        typer.echo(f"wrote {baseline}: {summary or 'no peak is known'}{own}", err=as_json)
    if junit is not None:
        write_file(junit, gate_junit(run.files.name, results))
    if as_json:
        typer.echo(json.dumps(gate_view(run.files.name, results, notes, run_status(run.states, now)), indent=2))
    else:
        for line in gate_lines(results, notes):
            typer.echo(line)
    if github or (github is None and os.environ.get("GITHUB_ACTIONS") == "true"):
        for line in gate_annotations(results, notes):
            typer.echo(line, err=as_json)
    raise typer.Exit(0 if all(result.holds for result in results) else 1)


def _which(run: FollowedRun, newest: bool) -> Iterator[str]:
    """Notes on the run that is checked, where the name alone leaves it open."""
    if newest:
        yield f"the newest run: {run.files.name}"
    elif run.files.path.is_dir() and (later := later_namesake(run.files.path.resolve())) is not None:
        yield (
            f"{later.name} lies beside it, as a later run of the same name is called; --newest with the folder above"
            " checks the last"
        )


def _size(option: str, text: str | None, ending: str = "") -> int | None:
    if text is None:
        return None
    if not text.strip().endswith(ending):
        raise UsageError(f"{option}: {text!r} does not say per what; write {text.partition('/')[0].strip()}{ending}")
    try:
        return parse_bytes(text.strip().removesuffix(ending))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _share(option: str, text: str) -> float:
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise UsageError(f"{option}: {text!r} is no percentage of 0 or more; write 5%")
    return share


def _read_baseline(path: Path) -> Baseline:
    try:
        return Baseline.from_json(read_small(path))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path}: no baseline: {reason}; --update-baseline writes one") from error
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
