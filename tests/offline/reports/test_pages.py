"""The tab as one file: every answer inside, nothing outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.errors import FileFormatError, RunFolderError, UsageError
from tbmem.model.timeline import save_timeline
from tbmem.offline.reports.pages import analysis_html, subject_of, write_html
from tests.analysis.timelines import recording, training_step
from tests.offline.queries.folder import Folder
from tests.offline.snapshots import write_snapshot
from tests.present.pages import Look, assert_it_is_offline

EVIL = "</script><img src=x onerror=alert(1)><!--"


def answers_in(page: Path) -> dict[str, Any]:
    look = Look(page.read_text())
    assert_it_is_offline(look)
    (answers,) = look.charts
    return answers


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path / "runs")
    found.log("a")
    save_timeline(recording(*training_step(0, 0), {"bytes": 50}), found.path / "a/w.tbmem.npz")
    return found


def test_every_view_of_a_run(folder: Folder, tmp_path: Path) -> None:
    page = write_html(folder.path / "a", tmp_path / "report.html", now=lambda: 0.0)

    found = answers_in(page)

    assert (found["index"]["source"], found["index"]["runs"][0]["run"]) == ("report", "a")
    assert found["overview"] == "overview?run=a"
    # what the tab would be told is what stands in the file
    place = {"run": "a", "file": "w.tbmem.npz"}
    for view in ("peak", "tensors", "segments", "steps", "operators"):
        assert found[f"{view}?file=w.tbmem.npz&run=a"] == folder.ask(view, **place)
    assert found["timeline?file=w.tbmem.npz&run=a"] == folder.ask("timeline", **place, largest=1000, points=4000)
    assert found["timeline?device=cpu&file=w.tbmem.npz&run=a"] == "timeline?file=w.tbmem.npz&run=a"
    assert found["live?run=a"] == folder.ask("live", run="a", points=4000)
    assert found["live?run=a&x=time"]["x"] == "time"
    assert found["ranks?run=a"] == folder.ask("ranks", run="a", recordings=1)
    # and a view without data has no tab
    assert found["estimate?run=a"]["empty"] is not None
    assert found["views"] == ["overview", "live", "timeline", "peak", "operators"]
    row = found["tensors?file=w.tbmem.npz&run=a"]["columns"]["row"][0]
    assert found[f"stack?file=w.tbmem.npz&row={row}&run=a"] == folder.ask("stack", **place, row=row)


def test_names_stay_text(folder: Folder, tmp_path: Path) -> None:
    name = EVIL.replace("/", "_")
    (folder.path / "a" / "x.pickle").unlink(missing_ok=True)
    write_snapshot(folder.path / "a" / f"{name}.pickle", sizes=[1000])

    page = write_html(folder.path / "a", tmp_path / "report.html")

    assert f"peak?file={name}.pickle&run=a" in answers_in(page)
    assert page.read_text().count("<script") == 2
    assert "<img src=x" not in page.read_text()


def test_a_broken_recording_is_an_error_in_the_page(folder: Folder, tmp_path: Path) -> None:
    (folder.path / "a/bad.pickle").write_bytes(b"\x80\x04")

    skipped: list[str] = []

    found = answers_in(write_html(folder.path / "a", tmp_path / "report.html", on_skip=skipped.append))

    assert [reason.partition(":")[0] for reason in skipped] == ["bad.pickle"]
    assert [one["file"] for one in found["overview?run=a"]["runs"][0]["errors"]] == ["bad.pickle"]
    assert "peak?file=bad.pickle&run=a" not in found


def test_what_cannot_be_written_or_read_leaves_nothing(folder: Folder, tmp_path: Path) -> None:
    folder.log("b")
    with pytest.raises(UsageError, match="2 runs"):
        write_html(folder.path, tmp_path / "x.html")
    with pytest.raises(FileFormatError, match="no such file"):
        write_html(folder.path / "c", tmp_path / "x.html")
    with pytest.raises(RunFolderError, match="cannot be written"):
        write_html(folder.path / "a", tmp_path / "no" / "x.html")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_page_that_was_there_is_replaced(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text("old")

    write_html(folder.path / "a", tmp_path / "x.html")

    assert answers_in(tmp_path / "x.html")
    assert [path.name for path in tmp_path.iterdir()] != ["x.html.partial"]


def test_the_page_of_a_recording(tmp_path: Path) -> None:
    row = {"bytes": 1000, "begin": 0, "operator": EVIL, "module": EVIL, "stack": ((f"/a/{EVIL}.py", 3, EVIL),)}
    analysis = analyze(recording(row), name=EVIL, path=f"/a/{EVIL}.pickle")
    page = tmp_path / "report.html"
    page.write_text(analysis_html(subject_of(analysis), EVIL))

    found = answers_in(page)

    assert "<img src=x" not in page.read_text()
    (run,) = found["index"]["runs"]
    assert (run["status"], run["recordings"][0]["kind"]) == ("files", "trace")
    (key,) = (key for key in found if key.startswith("peak?") and isinstance(found[key], dict))
    assert found[key]["peak"]["bytes"] == 1000
    # it has no log, and nothing to compare with
    assert found["views"] == ["timeline", "peak", "operators"]


def test_only_a_base_and_no_event() -> None:
    look = Look(analysis_html(subject_of(analyze(recording({"bytes": 100, "address": 1})))))

    (answers,) = look.charts
    timeline = next(
        answer for key, answer in answers.items() if key.startswith("timeline?") and isinstance(answer, dict)
    )
    assert timeline["empty"] is not None
    assert timeline["total"] == [100]
