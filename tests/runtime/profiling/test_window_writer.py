"""Windows are written in the background; the files of those that are one too many are deleted."""

from __future__ import annotations

import io
import logging
import shutil
import time
from pathlib import Path

import pytest

from tbmem.model.monitor_log import WindowRecord
from tbmem.model.trace_additions import TraceAdditions
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.window_files import WindowFiles
from tbmem.runtime.profiling.window_ledger import WindowLedger, WindowResult
from tbmem.runtime.profiling.window_writer import WindowWriter


class Run:
    """A run whose windows are written by hand."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.folder, self.ledger, self.guard = RunFolder(path), WindowLedger(), Guard()
        self.told: list[WindowRecord] = []
        self.writer = WindowWriter(
            keep, self.ledger, self.guard, logging.getLogger("tbmem").info, self.told.append, lambda: []
        )

    def window(self, number: int, content: bytes = b'{"traceEvents": []}', peak: int = 0) -> None:
        result = WindowResult(number=number, steps=[number], step_seconds=[0.1], peak=peak, complete=True)
        self.writer.put(
            result,
            WindowFiles(
                folder=self.folder,
                trace=self.folder.trace(number),
                content=io.BytesIO(content),  # type: ignore[arg-type]
                size=len(content),
                additions=TraceAdditions(),
                snapshot=(self.folder.snapshot(number), b"a pickle"),
            ),
        )

    @property
    def numbers(self) -> list[int]:
        """The windows that have files, and nothing else has."""
        traces = sorted(int(path.name.split(".")[1]) for path in self.folder.path.glob("*.gz"))
        assert len(list(self.folder.path.glob("*.pickle"))) == len(traces)
        return traces


def test_the_run_hears_of_a_window_when_its_files_are_there(tmp_path: Path) -> None:
    run = Run(tmp_path)

    run.window(1)
    run.folder.end()

    (record,) = run.told
    assert (record.number, record.first_step, record.complete) == (1, 1, True)
    assert all((tmp_path / name).is_file() for name in record.files)
    assert run.ledger.files == [tmp_path / name for name in record.files]
    cost = run.ledger.cost()
    assert cost is not None
    assert cost.trace_bytes == sum(path.stat().st_size for path in run.ledger.files)


def test_what_one_run_keeps_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # given a run that keeps four windows
    run = Run(tmp_path, keep=4)
    # when it has fifty, the highest in the middle
    with caplog.at_level(logging.INFO, "tbmem"):
        for number in range(1, 51):
            run.window(number, peak=100 if number == 25 else 1)
            run.folder.writer.wait(time.monotonic() + 60)
        run.folder.end()
    # then the first, the highest and the newest are there, and nothing else is in memory or in the summary
    assert run.numbers == [1, 25, 49, 50]
    assert [window.number for window in run.ledger.windows] == [1, 25, 49, 50]
    assert len(run.ledger.files) == 8
    assert run.ledger.deleted == 46
    assert run.ledger.complete == 50
    assert sum("profiling.keep" in line for line in caplog.messages) == 1


def test_a_folder_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")

    run.window(1)

    assert run.folder.end() == []
    assert run.numbers == [1]


def test_files_that_are_deleted_as_they_are_written_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: somebody deletes the folder between the writing and what is read of the files
    run, write = Run(tmp_path / "run"), WindowFiles.write
    times: list[int] = []

    def deleted_once(files: WindowFiles) -> object:
        written = write(files)
        times.append(1)
        if len(times) == 1:
            shutil.rmtree(run.folder.path)
        return written

    monkeypatch.setattr(WindowFiles, "write", deleted_once)
    # when
    run.window(1)
    run.folder.writer.wait(time.monotonic() + 10)
    run.folder.end()
    # then
    assert len(times) == 2
    assert run.numbers == [1]
