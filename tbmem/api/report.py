"""Reports of a run, or of recordings: text, figures, a folder, and a page for the browser that needs no network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import OddOne, odd_one
from tbmem.analysis.runs.run_report import RunReport
from tbmem.api.results import Result
from tbmem.errors import TbmemError, UsageError
from tbmem.model.finding import Finding
from tbmem.offline.analyze import analyze_all, load_rules
from tbmem.offline.live_logs import recordings_alone
from tbmem.offline.reports.folders import analyze_recordings_of, read_run_report, write_report, write_run_report
from tbmem.offline.reports.pages import write_html
from tbmem.present.text.analysis_tables import analyses_text, analyses_view
from tbmem.present.text.readme import Recorded, run_lines, run_of_recordings
from tbmem.regular_files import path_text
from tbmem.units import format_bytes

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Result):
    """The report of a run with its recordings, or of recordings alone."""

    name: str
    run: RunReport | None
    """Memory over the steps and findings; ``None`` of recordings alone."""
    analyses: tuple[Analysis, ...]
    """Of the recordings, without their rows."""
    skipped: tuple[str, ...] = ()
    """Files that were skipped, with the reason, one line each."""
    folder: str | None = None
    """The folder that was written."""
    page: str | None = None
    """The page that was written."""
    recorded: tuple[Recorded, ...] = ()
    of_its_run: tuple[str, ...] = ()
    """What the recordings of a run's folder do not show of it, one sentence each."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of the run, by step; empty of recordings alone."""
        return self.run.findings if self.run is not None else ()

    @property
    def odd_one(self) -> OddOne | None:
        """The recording that differs from the others."""
        return None if self.run is not None else odd_one(self.analyses)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values, as ``tbmem report --json`` prints it."""
        return self.run.to_dict() if self.run is not None else analyses_view(self.analyses, self.odd_one)

    def _headline(self) -> Iterable[str]:
        if self.run is not None:
            yield from run_lines(self.run, ())[:3]
        else:
            yield f"Report of {self.name}: {len(self.analyses)} recording{'s' * (len(self.analyses) != 1)}"
            highest = max(self.analyses, key=lambda analysis: analysis.main.peak.bytes, default=None)
            if highest is not None:
                yield f"  peak {format_bytes(highest.main.peak.bytes)} on {highest.main.name} in {highest.name}"
        yield from (f"wrote {path}" for path in (self.folder, self.page) if path is not None)

    def _lines(self) -> Iterable[str]:
        if self.run is not None:
            yield from run_lines(self.run, self.recorded)
        elif self.analyses:
            yield analyses_text(self.analyses, self.odd_one)
            yield ""
            yield from self.of_its_run
        if self.folder is not None:
            yield f"wrote {self.folder}{os.sep}: look at report.html"
        if self.page is not None:
            yield f"wrote {self.page}: open it in a browser, it needs no network"


def report(
    source: Path,
    *more: Path,
    out: Path | None = None,
    html: Path | None = None,
    name: str | None = None,
    rules: Path | None = None,
    recordings: bool = True,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> Report:
    """Report on a run, or on recordings, as ``tbmem report`` and ``tbmem analyze`` do.

    Nothing is written unless ``out`` or ``html`` says where.

    Args:
        source: A run folder; or a snapshot, a trace, an estimate's recording, a folder or a pattern of these.
        *more: Further recordings.
        out: Parent of the folder ``YYYYMMDD_HHMMSS_<name>`` that is written: the page, pictures, texts, JSON.
        html: File for the page alone, with all views.
        name: Name of the report; by default from the path.
        rules: YAML file with more rules for inferring categories.
        recordings: Whether the recordings of a run are analyzed also if nothing is written; without them it is quick.
        executor: Runs the analyses of several recordings; by default they run here.
        on_skip: Called with the reason, in one line, for which a file of a folder was skipped.

    Returns:
        The figures; ``str`` is what the command prints.

    Raises:
        FileFormatError: There is no such run or recording, or it is damaged.
        UsageError: There are several runs in the folder, or several recordings for one page, or it is no path.
        ConfigError: ``rules`` cannot be read.
        OSError: A file cannot be read or written.
    """
    for path in (source, *more, *(each for each in (out, html, rules) if each is not None)):
        path_text(path)
    alone = [source, *more] if more else [found] if (found := recordings_alone(source)) is not None else []
    if html is not None and len(alone) > 1:
        raise UsageError(f"html={os.fspath(html)}: one page holds one recording or run; say out=DIR for several")
    if alone:
        made = report_recordings(*alone, out=out, name=name, rules=rules, executor=executor, on_skip=on_skip)
    else:
        made = _report_run(source, out, name, recordings, _Options(rules, executor, on_skip))
    if html is None:
        return made
    was_analyzed = bool(alone) or recordings or out is not None  # then what was skipped is known
    of_page = _Options(None, None, on_skip)
    page = write_html(source, html, on_skip=None if was_analyzed else of_page.skip)
    return replace(made, page=str(page), skipped=(*made.skipped, *of_page.skipped))


def report_recordings(
    *sources: Path,
    out: Path | None = None,
    name: str | None = None,
    rules: Path | None = None,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> Report:
    """Report on recordings, as ``tbmem analyze`` does; arguments and errors as for :func:`report`."""
    options = _Options(rules, executor, on_skip)
    if out is not None:
        written = write_report(*sources, out=out, name=name, **options.values)
        analyses, folder = written.analyses, str(written.folder)
    else:
        analyses, folder = analyze_all(*sources, rows=False, **options.values), None
        if name is not None and len(analyses) == 1:
            analyses = (replace(analyses[0], name=name),)
    title = name or (analyses[0].name if len(analyses) == 1 else f"{len(analyses)} recordings")
    return Report(
        name=title,
        run=None,
        analyses=analyses,
        folder=folder,
        skipped=tuple(options.skipped),
        of_its_run=tuple(_of_its_run(sources, analyses)),
    )


def _of_its_run(sources: Sequence[Path], analyses: Sequence[Analysis]) -> list[str]:
    """What the recordings do not show of the run whose folder was named; nothing without one."""
    if len(sources) != 1 or not os.path.isdir(sources[0]):
        return []
    try:
        return run_of_recordings(read_run_report(sources[0]), analyses)
    except TbmemError:  # recordings alone, or those of several runs
        return []


def _report_run(run: Path, out: Path | None, name: str | None, recordings: bool, options: _Options) -> Report:
    if out is not None:
        written = write_run_report(run, out=out, name=name, **options.values)
        found, recorded, folder = written.report, written.recorded, str(written.folder)
    else:
        found, folder = read_run_report(run), None
        recorded = analyze_recordings_of(found, **options.values) if recordings else ()
    return Report(
        name=name or found.name,
        run=found,
        analyses=tuple(item.analysis for item in recorded),
        recorded=recorded,
        folder=folder,
        skipped=tuple(options.skipped),
    )


class _Options:
    """What every analysis is given; collects the files that were skipped."""

    def __init__(self, rules: Path | None, executor: Executor | None, on_skip: Callable[[str], None] | None) -> None:
        table = load_rules(rules) if rules is not None else None
        self.values: dict[str, Any] = {"table": table, "executor": executor, "on_skip": self.skip}
        self.skipped: list[str] = []
        self._on_skip = on_skip

    def skip(self, reason: str) -> None:
        """Keep the reason and pass it on."""
        self.skipped.append(reason)
        if self._on_skip is not None:
            self._on_skip(reason)
