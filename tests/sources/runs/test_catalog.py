"""Runs of a log folder: found by their files, named as TensorBoard names them, never outside of the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tbmem.model.files import MONITOR_LOG
from tbmem.sources.runs.catalog import Catalog, Root, Run, find_runs, is_inside, later_namesake, roots_of


def touch(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def runs(*roots: Root) -> dict[str, Run]:
    return dict(Catalog(roots).runs())


def test_files_of_a_run(tmp_path: Path) -> None:
    # given a run of two ranks with a profiler's folder below, a foreign trace, and what is none of ours
    for rank in range(2):
        touch(tmp_path / f"a/rank{rank}" / MONITOR_LOG)
        touch(tmp_path / f"a/rank{rank}/host_rank{rank}.17000000000000000.pt.trace.json.gz")
    touch(tmp_path / "a/deep/er/x.pickle")
    touch(tmp_path / "a/plugins/tbmem/1.tbmem.npz")
    touch(tmp_path / "a/estimate.json")
    touch(tmp_path / "b/resnet/w.pt.trace.json")
    touch(tmp_path / "c/model.pt")
    touch(tmp_path / "c/.hidden/x.pickle")
    touch(tmp_path / "c/w.addresses.npz")
    touch(tmp_path / "c/monitor.jsonl")

    found = runs(Root(tmp_path))

    assert set(found) == {"a", "b/resnet"}
    files = {one.file: (one.kind, one.rank) for one in found["a"].files}
    assert files == {
        f"rank0/{MONITOR_LOG}": ("log", 0),
        f"rank1/{MONITOR_LOG}": ("log", 1),
        "rank0/host_rank0.17000000000000000.pt.trace.json.gz": ("trace", 0),
        "rank1/host_rank1.17000000000000000.pt.trace.json.gz": ("trace", 1),
        "deep/er/x.pickle": ("snapshot", None),
        "plugins/tbmem/1.tbmem.npz": ("timeline", None),
        "estimate.json": ("estimate", None),
    }


def test_the_log_folder_itself_is_a_run(tmp_path: Path) -> None:
    touch(tmp_path / "rank0" / MONITOR_LOG)

    assert set(runs(Root(tmp_path))) == {"."}
    assert set(runs(Root(tmp_path, own_run="mine"))) == {"mine"}
    assert set(runs(Root(tmp_path, "one"))) == {"one/."}


def test_the_one_that_changed_last_comes_first(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new", "middle")):
        os.utime(touch(tmp_path / name / MONITOR_LOG), (0, (1, 3, 2)[number]))

    assert list(runs(Root(tmp_path))) == ["new", "middle", "old"]


def test_a_version_is_another_one_when_a_file_changes(tmp_path: Path) -> None:
    log = touch(tmp_path / "a" / MONITOR_LOG)
    now = [0.0]
    catalog = Catalog([Root(tmp_path)], clock=lambda: now[0])
    before = catalog.runs()["a"].version

    log.write_text("xy")
    assert catalog.runs()["a"].version == before  # read anew once a second at most
    now[0] = 2.0

    assert catalog.runs()["a"].version != before


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    secret = touch(tmp_path / "outside/secret.pickle")
    folder = tmp_path / "runs"
    inside = touch(folder / "a/inside.pickle")
    (folder / "a/out.pickle").symlink_to(secret)
    (folder / "a/in.pickle").symlink_to(inside)
    (folder / "away").symlink_to(secret.parent, target_is_directory=True)
    (folder / "a/gone.pickle").symlink_to(folder / "nothing")

    (run,) = runs(Root(folder)).values()

    assert {one.file for one in run.files} == {"inside.pickle", "in.pickle"}
    assert not is_inside(folder / "a/out.pickle", folder)


def test_a_log_folder_may_be_a_link(tmp_path: Path) -> None:
    touch(tmp_path / "real/a" / MONITOR_LOG)
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)

    assert set(runs(Root(tmp_path / "link"))) == {"a"}


def test_log_folders_as_tensorboard_gets_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert roots_of("logs") == (Root(tmp_path / "logs"),)
    assert roots_of("~/logs") == (Root(tmp_path / "home/logs"),)
    assert roots_of("", "one:a,two:/b,/c:d/e") == (
        Root(tmp_path / "a", "one"),
        Root(Path("/b"), "two"),
        Root(Path("/c:d/e")),
    )
    # never the working directory
    assert roots_of("") == ()
    assert roots_of("gs://bucket/logs") == roots_of("", "x:s3://bucket") == ()


def test_whether_there_is_any(tmp_path: Path) -> None:
    now = [0.0]
    catalog = Catalog([Root(tmp_path)], clock=lambda: now[0])
    assert not catalog.has_any()

    touch(tmp_path / "a" / MONITOR_LOG)
    assert not catalog.has_any()
    now[0] = 10.0

    assert catalog.has_any()


def test_five_hundred_runs(tmp_path: Path) -> None:
    for number in range(500):
        touch(tmp_path / f"run{number:03}" / MONITOR_LOG)

    assert len(runs(Root(tmp_path))) == 500


def test_archived_runs_are_left_out_unless_they_are_named_or_alone(tmp_path: Path) -> None:
    # given
    for run in ("new", "archived/old"):
        log = tmp_path / run / MONITOR_LOG
        log.parent.mkdir(parents=True)
        log.touch()
    # when / then
    assert [run.name for run in find_runs(tmp_path)] == ["new"]
    assert [run.name for run in find_runs(tmp_path / "archived")] == ["old"]


def test_later_runs_of_the_same_name(tmp_path: Path) -> None:
    for name in ("big", "big_2", "big_10", "big_", "bigger_11", "big_x", "lr_9", "lr_9_25"):
        (tmp_path / name).mkdir()
    (tmp_path / "big_12").touch()

    assert later_namesake(tmp_path / "big") == tmp_path / "big_10"
    assert later_namesake(tmp_path / "big_2") is None
    # what somebody has chosen: lr_9_2 would be the first
    assert later_namesake(tmp_path / "lr_9") is None
