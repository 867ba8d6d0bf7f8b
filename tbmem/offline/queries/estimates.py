"""Finds the estimates of a log folder: figures as JSON, and the recording of the same stem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from tbmem.errors import FileFormatError
from tbmem.model.estimate_figures import read_estimate
from tbmem.model.files import ESTIMATE_SUFFIX, TIMELINE_SUFFIX
from tbmem.model.unpacked_size import read_small
from tbmem.sources.runs.catalog import ESTIMATE, TIMELINE, Run, RunFile


class EstimateFiles(NamedTuple):
    """The files of one estimate."""

    run: Run
    figures: RunFile
    recording: RunFile | None

    @property
    def file(self) -> str:
        """The file that it is called by: its recording, else its figures."""
        return (self.recording or self.figures).file

    def item(self) -> dict[str, str]:
        """The estimate in a list to choose from."""
        return {"run": self.run.name, "file": self.file}


def estimates_of(runs: Iterable[Run]) -> Iterator[EstimateFiles]:
    """All estimates whose figures were written."""
    for run in runs:
        recordings = {file.file: file for file in run.of(TIMELINE)}
        for figures in run.of(ESTIMATE):
            yield EstimateFiles(run, figures, recordings.get(_recording_of(figures.file)))


def _recording_of(file: str) -> str:
    path = PurePosixPath(file)
    stem = path.name.removesuffix(ESTIMATE_SUFFIX).removesuffix(".json")
    return str(path.with_name(stem + TIMELINE_SUFFIX))


def read_figures(file: RunFile) -> dict[str, Any]:
    """The figures of an estimate.

    Raises:
        FileFormatError: They cannot be read.
    """
    try:
        return dict(read_estimate(read_small(file.path)))
    except (OSError, FileFormatError) as error:
        raise FileFormatError(f"{file.file}: {str(error).removeprefix(f'{file.path}: ')}") from error
