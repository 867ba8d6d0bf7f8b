"""Folders of results: complete or absent, with a name of their own."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.offline.reports.folders import clean_name, write_folder, write_report, write_run_report
from tbmem.present.figures.figures import PICTURES
from tests.offline.snapshots import write_snapshot
from tests.present.pages import Look, assert_it_is_offline

FILES = {*PICTURES, "README.md", "analysis_report.txt", "report.html", "analysis.json"}
MOMENT = time.mktime((2025, 11, 14, 14, 30, 25, 0, 0, -1))


def test_a_report_of_one(tmp_path: Path) -> None:
    folder = tmp_path / "iteration_1"
    folder.mkdir()
    source = write_snapshot(folder / "rank0_memory_snapshot.pickle", sizes=[1 << 20])

    report = write_report(source, out=tmp_path / "a" / "results", now=lambda: MOMENT)

    assert report.folder == tmp_path / "a" / "results" / "20251114_143025_iter1_rank0"
    assert {path.name for path in report.folder.iterdir()} == FILES
    assert (tmp_path / "a" / "results" / "latest").resolve() == report.folder.resolve()
    assert {path.name for path in report.folder.parent.iterdir()} == {report.folder.name, "latest"}
    assert json.loads((report.folder / "analysis.json").read_text()) == json.loads(
        json.dumps(report.analyses[0].to_dict())
    )
    assert_it_is_offline(Look((report.folder / "report.html").read_text()))


def test_reports_do_not_overwrite_each_other(tmp_path: Path) -> None:
    source = write_snapshot(tmp_path / "x.pickle", sizes=[1000])
    out = tmp_path / "results"

    folders = [write_report(source, out=out, name="a/b c", now=lambda: MOMENT).folder.name for _ in range(2)]

    assert folders == ["20251114_143025_a_b_c", "20251114_143025_a_b_c-2"]
    assert (out / "latest").resolve().name == folders[-1]


def test_several_have_a_folder_each_and_one_page(tmp_path: Path) -> None:
    for rank in range(3):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[(9 if rank == 2 else 1) << 20])

    with ThreadPoolExecutor(2) as executor:
        report = write_report(tmp_path / "rank*.pickle", out=tmp_path / "results", executor=executor)

    assert report.folder.name.endswith("_3_recordings")
    found = {path.name for path in report.folder.iterdir()}
    assert found == {"rank0", "rank1", "rank2", "README.md", "report.html", "comparison.json"}
    assert {path.name for path in (report.folder / "rank1").iterdir()} == FILES
    data = json.loads((report.folder / "comparison.json").read_text())
    assert data["odd_one"]["name"] == "rank2"
    look = Look((report.folder / "report.html").read_text())
    assert_it_is_offline(look)
    (answers,) = look.charts
    assert all((report.folder / link).is_file() for link in answers["sides"]["link"])


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"hello", b"\x1f\x8b\x08\x00"])
def test_bad_input_leaves_nothing(content: bytes, tmp_path: Path) -> None:
    source = tmp_path / "bad.pickle"
    source.write_bytes(content)

    with pytest.raises(FileFormatError):
        write_report(source, out=tmp_path / "a" / "results")

    assert list(tmp_path.iterdir()) == [source]


def test_one_bad_file_of_several_leaves_nothing(tmp_path: Path) -> None:
    good = write_snapshot(tmp_path / "good.pickle", sizes=[1000])
    (tmp_path / "bad.pickle").write_bytes(b"hello")
    out = tmp_path / "results"
    out.mkdir()

    with pytest.raises(FileFormatError):
        write_report(good, tmp_path / "bad.pickle", out=out)

    assert list(out.iterdir()) == []


def test_a_folder_with_one_recording_among_others(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_snapshot(tmp_path / "in" / "good.pickle", sizes=[1000])
    (tmp_path / "in" / "weights.pickle").write_bytes(b"hello")
    skipped: list[str] = []

    report = write_report(tmp_path / "in", out=tmp_path / "results", on_skip=skipped.append)

    assert {path.name for path in report.folder.iterdir()} == FILES
    assert len(skipped) == 1


def test_a_link_that_is_none_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()

    final, _ = write_folder(tmp_path, "a", MOMENT, lambda folder: (folder / "x").write_text("x"))

    assert final == tmp_path / "20251114_143025_a"
    assert not (tmp_path / "latest").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"latest", final.name}


def test_names_that_folders_can_have() -> None:
    assert clean_name("../x y") == "x_y"
    assert clean_name("…") == "recording"
    assert len(clean_name("x" * 500)) <= 120


def _log(folder: Path, rank: int) -> None:
    path = folder / MONITOR_LOG
    path.parent.mkdir(parents=True)
    header = {"type": "header", "rank": rank, "started": 1000.0, "host": "node7", "torch": "2.13"}
    samples = [
        {"type": "samples", "step": step, "time": 1000.0 + step, "device": "cuda:0", "rank": rank, "first_step": step}
        | {"count": 1, "allocated": 1 << 30, "reserved": 2 << 30, "peak_allocated": (1 << 30) + step}
        for step in range(1, 20)
    ]
    window = {"type": "window", "number": 1, "first_step": 4, "last_step": 6, "complete": True}
    window["files"] = ["w.snapshot.pickle"]
    path.write_text("\n".join(json.dumps(line) for line in (header, *samples, window)) + "\n")


def test_the_report_of_a_run_of_two_ranks(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "first"
    for rank in range(2):
        _log(run / f"rank{rank}", rank)
    write_snapshot(run / "rank0" / "w.snapshot.pickle", sizes=[1 << 20])

    report = write_run_report(tmp_path / "runs", out=tmp_path / "results", now=lambda: MOMENT)

    assert report.folder.name == "20251114_143025_first"
    found = {path.name for path in report.folder.iterdir()}
    assert found == {"README.md", "report.html", "run.json", "memory_series.png", "rank0"}
    look = Look((report.folder / "report.html").read_text())
    assert_it_is_offline(look)
    (answers,) = look.charts
    assert [(one["rank"], one["device"]) for one in answers["live?run=first"]["series"]] == [
        (0, "cuda:0"),
        (1, "cuda:0"),
    ]
    place = "file=rank0/w.snapshot.pickle&run=first"
    assert answers[f"peak?{place}"]["peak"]["bytes"] == 1 << 20
    assert answers[f"peak?device=cuda:0&{place}"] == f"peak?{place}"
    data = json.loads((report.folder / "run.json").read_text())
    assert data["recordings"]["w.snapshot.pickle"]["devices"]["0"]["peak_bytes"] == 1 << 20


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file or folder"):
        write_run_report(tmp_path / "x", out=tmp_path / "results")
    recording = tmp_path / "rank0.tbmem.npz"
    recording.write_bytes(b"")
    with pytest.raises(FileFormatError, match="a recording, not a run; .* for tbmem analyze"):
        write_run_report(recording, out=tmp_path / "results")
    with pytest.raises(FileFormatError, match="no live log"):
        write_run_report(tmp_path, out=tmp_path / "results")
    recording.unlink()
    with pytest.raises(FileFormatError, match="this folder is empty; name a run's"):
        write_run_report(tmp_path, out=tmp_path / "results")
    for name in ("a", "b"):
        _log(tmp_path / name, 0)
    (log,) = (tmp_path / "b").rglob("monitor.jsonl")
    os.utime(log, (1, 1))  # a was written to last
    with pytest.raises(UsageError, match="2 runs; name one of them, the newest first: a, b$"):
        write_run_report(tmp_path, out=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_without_matplotlib_there_are_all_files_but_the_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    source = write_snapshot(tmp_path / "x.pickle", sizes=[1000])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    passed_over: list[str] = []
    # when
    report = write_report(source, out=tmp_path / "results", on_skip=passed_over.append)
    # then
    assert {path.name for path in report.folder.iterdir()} == FILES - set(PICTURES)
    line = "drawing them needs matplotlib (tbmem's extra plots): pip install 'matplotlib>=3.8'"
    assert passed_over == [f"pictures: {line}"]
    readme = (report.folder / "README.md").read_text()
    assert f"No pictures: {line}" in readme
    assert ".png" not in readme
    # and of a damaged file it says only that
    (tmp_path / "cut.pickle").write_bytes(source.read_bytes()[:200])
    with pytest.raises(FileFormatError, match="damaged"):
        write_report(tmp_path / "cut.pickle", out=tmp_path / "results", on_skip=passed_over.append)
    assert len(passed_over) == 1
