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
