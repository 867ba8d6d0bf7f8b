"""`tbmem check`: a run and limits go in; which of them hold, and an exit code for CI, come out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tbmem.analysis.gate import Limits, check_run, notes_on, peaks_of
from tbmem.cli.arguments import AsJson
from tbmem.cli.read_runs import read_one_run
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import complete_or_nothing
from tbmem.present.gate_report import gate_annotations, gate_junit, gate_lines, gate_view
from tbmem.units import format_bytes, parse_bytes

_SCHEMA = 1


def command(
    path: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run folder, or its monitor.jsonl.")],
    max_peak: Annotated[str | None, typer.Option(metavar="SIZE", help="Largest peak, such as 10GiB.")] = None,
    max_growth: Annotated[
        str | None, typer.Option(metavar="SIZE/step", help="Fastest growth of the floor, such as 1MiB/step.")
    ] = None,
    no_leak: Annotated[bool, typer.Option("--no-leak", help="The verdict must not be a leak.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Peaks must be near those of this file.")
    ] = None,
    tolerance: Annotated[str, typer.Option(metavar="PERCENT", help="How far above the baseline a peak may be.")] = "5%",
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write this run's peaks to the baseline instead.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    github: Annotated[
        bool | None, typer.Option(help="Print annotations for GitHub Actions; by default where it runs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a run against limits; exit 0 if all hold, 1 if one does not, 2 if the input is wrong."""
    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs --baseline FILE, which it writes")
    limits = Limits(
        max_peak=_size("--max-peak", max_peak),
        max_growth=_size("--max-growth", max_growth, ending="/step"),
        no_leak=no_leak,
        baseline=_read_baseline(baseline) if baseline is not None and not update_baseline else None,
        tolerance=_share("--tolerance", tolerance),
    )
    if limits == Limits(tolerance=limits.tolerance) and not update_baseline:
        raise UsageError("nothing to check: give --max-peak, --max-growth, --no-leak or --baseline")
    run = read_one_run(path)
    results, notes = check_run(run.states, limits), notes_on(run.states)
    if baseline is not None and update_baseline:
        peaks = peaks_of(run.states)
        _write(baseline, json.dumps({"schema": _SCHEMA, "peaks": peaks}, indent=2).encode() + b"\n")
        told = ", ".join(f"{place} {format_bytes(peak)}" for place, peak in peaks.items())
        typer.echo(f"wrote {baseline}: {told or 'no peak is known'}", err=as_json)
    if junit is not None:
        _write(junit, gate_junit(run.files.name, results))
    if as_json:
        typer.echo(json.dumps(gate_view(run.files.name, results, notes), indent=2))
    else:
        for line in gate_lines(results, notes):
            typer.echo(line)
    for line in gate_annotations(results, notes) if _wants_annotations(github) else []:
        typer.echo(line, err=as_json)
    raise typer.Exit(0 if all(result.holds for result in results) else 1)


def _wants_annotations(asked: bool | None) -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true" if asked is None else asked


def _size(option: str, text: str | None, ending: str = "") -> int | None:
    if text is None:
        return None
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
        raise UsageError(f"{option}: {text!r} is no percentage; write 5%")
    return share


def _read_baseline(path: Path) -> Mapping[str, int]:
    try:
        data = json.loads(path.read_bytes())
        peaks = {str(place): int(size) for place, size in data["peaks"].items()}
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path}: no baseline: {reason}; --update-baseline writes one") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path}: not a baseline of tbmem") from error
    if data.get("schema") != _SCHEMA:
        raise FileFormatError(f"{path}: a baseline of another version; --update-baseline writes it anew")
    return peaks


def _write(path: Path, data: bytes) -> None:
    try:
        with complete_or_nothing(path) as partial:
            partial.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
