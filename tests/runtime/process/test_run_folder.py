"""Where a run writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.config.schema import RunConfig
from tbmem.errors import RunFolderError
from tbmem.runtime.process.identity import Rank
from tbmem.runtime.process.run_folder import RunFolder, open_run_folder


def test_one_rank_writes_into_the_run_folder_itself(tmp_path: Path) -> None:
    folder = open_run_folder(RunConfig(logdir=str(tmp_path), name="a"), Rank(0, 1))

    assert folder.path == tmp_path / "a"
    assert folder.monitor_log.parent.is_dir()


def test_all_ranks_write_into_sub_folders(tmp_path: Path) -> None:
    config = RunConfig(logdir=str(tmp_path), name="a", ranks="all")

    paths = [open_run_folder(config, Rank(rank, 2)).path for rank in range(2)]

    assert paths == [tmp_path / "a" / "rank0", tmp_path / "a" / "rank1"]


def test_a_run_without_a_name_never_shares_a_folder(tmp_path: Path) -> None:
    config = RunConfig(logdir=str(tmp_path))

    paths = {open_run_folder(config, Rank()).path for _ in range(3)}

    assert len(paths) == 3


def test_a_name_that_was_used_for_a_snapshot_is_not_used_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for label in (1, "mine"):
        folder.snapshot(label).touch()

    assert folder.snapshot(1).name.endswith("_rank0.2.snapshot.pickle")
    assert folder.snapshot("mine").name.endswith("_rank0.mine-2.snapshot.pickle")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    # given a file where the folder should be
    (tmp_path / "file").touch()

    # when / then
    with pytest.raises(RunFolderError) as caught:
        RunFolder(tmp_path / "file" / "run")
    message = str(caught.value)
    assert message.startswith("run.logdir: cannot write to ")
    assert str(tmp_path / "file") in message
    assert "\n" not in message


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert open_run_folder(RunConfig(logdir="~/runs", name="a"), Rank()).path == tmp_path / "runs" / "a"
