"""tbmem.report: runs and recordings, in memory, as a folder and as a page; the command's own JSON and text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import tbmem
from tbmem.api.report import report
from tbmem.errors import FileFormatError, UsageError
from tests.cli.conftest import Run, finished_run, run
from tests.offline.snapshots import write_snapshot

__all__ = ["finished_run", "run"]


def test_a_run_is_what_the_command_prints(run: Run, finished_run: Path, tmp_path: Path) -> None:
    result = report(finished_run)
    as_json = run("report", finished_run, "--json")
    text = run("report", finished_run, "--out", "x")

    assert isinstance(result, tbmem.Report)
    assert result.run is not None
    assert result.run.steps == 30
    here, there = json.loads(result.to_json()), json.loads(as_json.out)
    assert {**here, "status_text": "", "text": ""} == {**there, "status_text": "", "text": ""}
    assert text.out.startswith(f"{result}\nwrote x/")
    assert re.match(r"run mine of \d+\.\d s: 30 steps", repr(result))
    assert not list(tmp_path.glob("results*"))


def test_recordings_are_what_analyze_prints(run: Run, tmp_path: Path) -> None:
    for rank in range(3):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[1 << 20] * (9 if rank == 2 else 4))

    one, several = report(tmp_path / "rank0.pickle", name="mine"), report(*sorted(tmp_path.glob("*.pickle")))

    assert json.loads(run("report", "rank0.pickle", "--name", "mine", "--json").out)["name"] == one.to_dict()["name"]
    assert json.loads(run("analyze", "rank*.pickle", "--json").out)["odd_one"] == several.to_dict()["odd_one"]
    assert several.odd_one is not None
    printed = run("analyze", tmp_path / "rank0.pickle", "--name", "mine", "--out", "x").out.splitlines()
    assert [line.rstrip() for line in printed][:-2] == str(one).rstrip().splitlines()
    assert repr(one) == "Report of mine: 1 recording\n  peak 4.00 MiB on cuda:0 in mine"


def test_a_folder_and_a_page(finished_run: Path, tmp_path: Path) -> None:
    result = report(finished_run, out=tmp_path / "out", html=tmp_path / "page.html")

    assert result.folder is not None
    assert result.page == str(tmp_path / "page.html")
    assert (Path(result.folder) / "report.html").is_file()
    assert "Memory" in (tmp_path / "page.html").read_text()
    assert f"wrote {result.page}" in repr(result)


def test_what_was_skipped_is_named(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "a.pickle", sizes=[1000])
    (tmp_path / "b.pickle").write_bytes(b"\x80\x04")
    heard: list[str] = []

    result = report(tmp_path, on_skip=heard.append)

    assert len(result.analyses) == len(result.skipped) == 1
    assert result.skipped == tuple(heard)


def test_wrong_input_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError):
        report(tmp_path / "nowhere", out=tmp_path / "x")
    for name in ("a", "b"):
        write_snapshot(tmp_path / f"{name}.pickle", sizes=[1000])
    with pytest.raises(UsageError, match="5 is no path"):
        report(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="one page holds one"):
        report(tmp_path / "a.pickle", tmp_path / "b.pickle", html=tmp_path / "x.html")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pickle", "b.pickle"]
