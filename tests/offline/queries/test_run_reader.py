"""Runs that are being written, broken, mended or gone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.model.monitor_log import to_line
from tbmem.model.progress import CancelledError, progress
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.offline.queries.run_reader import MissingError, RunReader, reason
from tbmem.sources.runs.catalog import Catalog, Root
from tests.offline.queries.folder import Folder
from tests.offline.snapshots import write_snapshot


def test_a_run_that_is_being_written(folder: Folder) -> None:
    path = folder.log("a", steps=2, end=False)
    assert folder.ask("live", run="a")["series"][0]["x"] == [1, 2]

    with path.open("a") as file:
        sample = MemorySample(step=3, time=1003.0, device="cuda:0", allocated=5)
        file.write(to_line(SampleRow(3, 1, 5, 5, sample)) + '\n{"type":"sam')

    assert folder.ask("live", run="a")["series"][0]["x"] == [1, 2, 3]
    assert folder.ask("live", run="a")["errors"] == []


def test_a_broken_file_is_an_item_with_its_error(folder: Folder) -> None:
    folder.log("a/rank0")
    folder.log("a/rank1", rank=1).write_text("hello\nworld\n")
    (folder.path / "a/bad.pickle").write_bytes(b"\x80\x04")
    write_snapshot(folder.path / "a/good.pickle", sizes=[1000])

    with pytest.raises(FileFormatError, match="bad.pickle"):
        folder.ask("peak", run="a", file="bad.pickle")
    (run,) = folder.ask("overview", run="a")["runs"]

    assert {one["file"] for one in run["errors"]} == {f"rank1/{MONITOR_LOG}", "bad.pickle"}
    assert "not a monitor log" in next(one["error"] for one in run["errors"] if one["kind"] == "log")
    assert len(run["cards"]) == 1
    assert folder.ask("peak", run="a", file="good.pickle")["peak"]["bytes"] == 1000
    index = folder.ask("index")
    errors = {one["file"]: one["error"] is not None for one in index["runs"][0]["recordings"]}
    assert errors == {"bad.pickle": True, "good.pickle": False}


def test_a_file_that_vanishes_grows_or_is_mended(recorded: Folder) -> None:
    path = recorded.path / "a/w.tbmem.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(FileFormatError):
        recorded.ask("timeline", run="a", file="w.tbmem.npz")

    path.write_bytes(whole)
    assert recorded.ask("timeline", run="a", file="w.tbmem.npz")["total"]
    path.unlink()

    with pytest.raises(MissingError):
        recorded.ask("timeline", run="a", file="w.tbmem.npz")


def test_an_address_book_outside_of_the_log_folder_is_not_opened(recorded: Folder) -> None:
    # given a book beside a recording that is a link out of the folder
    path = recorded.path / "a/other.snapshot.pickle"
    write_snapshot(path, sizes=[1000])
    secret = recorded.path.parent / "secret.npz"
    secret.write_bytes(b"PK")
    path.with_name("other.addresses.npz").symlink_to(secret)

    # then that recording is refused, and the run is shown
    with pytest.raises(FileFormatError, match="link out of the log folder"):
        recorded.ask("peak", run="a", file="other.snapshot.pickle")
    (run,) = recorded.ask("overview", run="a")["runs"]
    assert [error["file"] for error in run["errors"]] == ["other.snapshot.pickle"]


def test_what_is_read_is_kept_until_the_file_changes(folder: Folder) -> None:
    folder.log("a", steps=2)
    path = write_snapshot(folder.path / "a/x.pickle", sizes=[1000])
    reader = RunReader(Catalog([Root(folder.path)], clock=folder.tick), now=lambda: 1100.0)

    first, again = (reader.recording(reader.run("a"), "x.pickle") for _ in range(2))
    logged, same = (reader.logged(reader.run("a")) for _ in range(2))
    write_snapshot(path, sizes=[1000, 2000])
    changed = reader.recording(reader.run("a"), "x.pickle")

    assert again is first
    assert same is logged
    assert (first.analysis.main.peak.bytes, changed.analysis.main.peak.bytes) == (1000, 3000)


def test_a_run_is_named_by_a_parameter(folder: Folder) -> None:
    reader = RunReader(Catalog([Root(folder.path)]), now=lambda: 1100.0)

    with pytest.raises(UsageError, match="before= is missing"):
        reader.run(None, "before")
    with pytest.raises(MissingError, match="before=x: no such run"):
        reader.run("x", "before")


def test_an_error_is_one_line_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as gone:
        (tmp_path / "x").read_bytes()

    assert reason(gone.value) == "cannot be read: No such file or directory"
    assert reason(ValueError("first\nsecond")) == "first"
    assert reason(ValueError()) == "ValueError"


def test_reading_is_followed_and_can_be_cancelled(recorded: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a recording that takes as long as nobody cancels it, and two who wait for it
    started = Event()

    def endless(*_: object, **__: object) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            progress("reading", 0.5)
            started.set()

    monkeypatch.setattr("tbmem.offline.queries.run_reader.read_recording", endless)

    def ask() -> str:
        try:
            recorded.ask("peak", run="a", file="w.tbmem.npz")
        except CancelledError as error:
            return str(error)
        return "read"

    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask)
        assert started.wait(30)
        (work,) = recorded.ask("progress")["work"]
        second = pool.submit(ask)
        time.sleep(0.3)  # until it waits

        # when it is cancelled
        recorded.answers.cancel({"work": [str(work["work"])]})

        # then neither goes on, and it is no error of the file
        assert {first.result(30), second.result(30)} == {"reading w.tbmem.npz was cancelled"}
    assert (work["name"], work["stage"], work["share"]) == ("w.tbmem.npz", "reading", 0.5)
    assert recorded.ask("progress") == {"work": []}
    monkeypatch.undo()
    assert recorded.ask("peak", run="a", file="w.tbmem.npz")["peak"]["bytes"] > 0
