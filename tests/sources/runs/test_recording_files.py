"""What a user types, and the files that are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.errors import FileFormatError
from tbmem.sources.runs.recording_files import find_recordings, short_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("outputs/memory_snapshot/iteration_1/rank0_memory_snapshot.pickle", "iter1_rank0"),
        ("iter_12/rank-3.pickle", "iter12_rank3"),
        ("step_00020/mem.pickle", "iter20"),
        ("run/node7_rank2.1795226615271740279.pt.trace.json.gz", "rank2"),
        ("trace.json", "trace"),
        ("x.pt.trace.json", "x"),
        ("mem.pickle.gz", "mem"),
        ("a b/profile (1).pkl", "profile_1"),
        ("filter1_franking0.pickle", "filter1_franking0"),
    ],
)
def test_short_names(path: str, name: str) -> None:
    assert short_name(Path(path)) == name


def test_a_folder_is_searched_and_named_files_are_told_apart(tmp_path: Path) -> None:
    for name in ("a/rank0.pickle", "a/rank0.addresses.npz", "a/notes.txt", "b/x.pt.trace.json.gz", "b/y.tbmem.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = find_recordings([tmp_path, tmp_path / "a" / "rank0.pickle"])

    assert [(one.path.name, one.name, one.named) for one in found] == [
        ("rank0.pickle", "rank0", True),
        ("x.pt.trace.json.gz", "x", False),
        ("y.tbmem.npz", "y", False),
    ]


def test_names_that_tutorials_use_are_found_in_a_folder(tmp_path: Path) -> None:
    for name in ("trace.json", "gpt_trace.json", "mem.pickle.gz", "snapshot.pkl", "config.json", "analysis.json"):
        (tmp_path / name).touch()

    found = [one.path.name for one in find_recordings([tmp_path])]

    assert found == ["gpt_trace.json", "mem.pickle.gz", "snapshot.pkl", "trace.json"]


def test_windows_of_one_process_are_numbered(tmp_path: Path) -> None:
    for number in (1795226617874293498, 1795226615271740279):
        (tmp_path / f"vm_rank0.{number}.pt.trace.json.gz").touch()

    assert [one.name for one in find_recordings([tmp_path])] == ["rank0_window1", "rank0_window2"]


def test_patterns(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.pickle").touch()

    assert [one.name for one in find_recordings([f"{tmp_path}/rank[01].*"])] == ["rank0", "rank1"]


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere.pickle", "no such file or folder"), ("*.none", "no such file or folder"), (".", "no recording in this")],
)
def test_nothing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(FileFormatError, match=message) as caught:
        find_recordings([path])

    assert "\n" not in str(caught.value)


def test_archived_recordings_are_left_out_and_counted(tmp_path: Path) -> None:
    # given a folder of results with older ones below
    for name in ("20261114_new/rank0.pickle", "archived/20261101_old/rank0.pickle", "archived/rank1.pickle"):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    said: list[str] = []

    # when it is read
    found = find_recordings([tmp_path / "results"], said.append)

    # then the older ones are left out, which is said
    assert [each.path.parent.name for each in found] == ["20261114_new"]
    assert said == [f"{tmp_path}/results: 2 recordings in archived; name that folder to read them"]
    # and they are read where they are named, in any way
    assert len(find_recordings([tmp_path / "results/archived"])) == 2
    assert len(find_recordings([tmp_path / "results/archived/20261101_old"])) == 1
    assert len(find_recordings([f"{tmp_path}/results/*/rank*.pickle"])) == 2


def test_a_folder_with_archived_recordings_only_is_read(tmp_path: Path) -> None:
    (tmp_path / "archived").mkdir()
    (tmp_path / "archived/rank0.pickle").touch()

    assert len(find_recordings([tmp_path])) == 1
