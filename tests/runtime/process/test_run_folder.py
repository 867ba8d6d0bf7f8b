"""Run folders: paths, names and owners."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tbmem
from tbmem.config.schema import RunConfig
from tbmem.errors import RunFolderError
from tbmem.runtime.process.lifecycle import Rank
from tbmem.runtime.process.run_folder import RunFolder, claim_folder, job_name, launch_of, open_run_folder
from tests.own_tensors import only_own_tensors

PROGRAM = """
import sys
from pathlib import Path
from tbmem.runtime.process.lifecycle import find_rank
from tbmem.runtime.process.run_folder import claim_folder
sys.stdin.readline()
print(claim_folder(Path(sys.argv[1]), "a", find_rank()).name)
"""


def _started_together(logdir: Path, *environments: dict[str, str]) -> list[str]:
    """The folders that processes take which start at the same moment."""
    command = [sys.executable, "-c", PROGRAM, str(logdir)]
    children = [
        subprocess.Popen(command, env={**os.environ, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for more in environments
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    return [child.communicate(timeout=60)[0].strip() for child in children]


def _ranks(count: int, **more: str) -> list[dict[str, str]]:
    sizes = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **sizes, **more} for rank in range(count)]


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


@pytest.mark.parametrize("path", ["a\0b", "a\udcff", "s3://bucket/run"])
def test_a_path_that_is_no_folder_here_is_one_line_and_makes_none(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    monkeypatch.chdir(tmp_path)
    # when
    with pytest.raises(RunFolderError) as caught:
        RunFolder(path)
    # then
    assert repr(path) in str(caught.value)
    assert not list(tmp_path.iterdir())


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


# owners


def test_a_second_run_of_a_name_has_a_number_and_says_so(tmp_path: Path) -> None:
    config = RunConfig(logdir=str(tmp_path), name="a")

    first, second, third = (open_run_folder(config, Rank()) for _ in range(3))

    assert [each.path.name for each in (first, second, third)] == ["a", "a_2", "a_3"]
    assert first.note == ""
    assert second.note == f"{tmp_path / 'a'} holds an earlier run: this one writes to {tmp_path / 'a_2'}"


def test_a_folder_with_other_files_has_no_run_yet(tmp_path: Path) -> None:
    # given what a framework's logger, or `tbmem estimate`, has left there
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "estimate.json").write_text("{}")

    assert claim_folder(tmp_path, "a", Rank()).name == "a"


@pytest.mark.parametrize("place", ["a", "a/rank3"])
def test_a_log_without_an_owner_is_an_earlier_run(place: str, tmp_path: Path) -> None:
    log = tmp_path / place / "plugins/tbmem/monitor.jsonl"
    log.parent.mkdir(parents=True)
    log.touch()

    assert claim_folder(tmp_path, "a", Rank()).name == "a_2"


def test_runs_that_start_at_the_same_moment_share_no_folder(tmp_path: Path) -> None:
    assert sorted(_started_together(tmp_path, {}, {}, {})) == ["a", "a_2", "a_3"]


def test_all_ranks_of_a_launch_agree_and_those_of_the_next_do_too(tmp_path: Path) -> None:
    # when ranks start together, are restarted by the same launcher, and are launched anew on the same port
    first = _started_together(tmp_path, *_ranks(2, TORCHELASTIC_RESTART_COUNT="0"))
    restarted = _started_together(tmp_path, *_ranks(2, TORCHELASTIC_RESTART_COUNT="1"))
    again = _started_together(tmp_path, *_ranks(2, TORCHELASTIC_RESTART_COUNT="1"))
    # then
    assert (first, restarted, again) == (["a", "a"], ["a_2", "a_2"], ["a_3", "a_3"])


def test_a_rank_that_is_late_finds_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a job whose rank 0 is in its second run already
    monkeypatch.setenv("MASTER_PORT", "29500")
    zero = [claim_folder(tmp_path, "a", Rank(0, 2)).name for _ in range(2)]
    # when rank 1 comes
    one = [claim_folder(tmp_path, "a", Rank(1, 2)).name for _ in range(2)]
    # then it goes through the same folders
    assert zero == one == ["a", "a_2"]


def test_all_ranks_of_a_job_have_one_name() -> None:
    across = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "SLURM_JOB_ID": "77"}
    on_one = {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "5e1f-uuid"}

    assert job_name(across) == "job-77"
    assert job_name(on_one) == job_name(on_one)
    assert "uuid" not in job_name(on_one)
    assert launch_of(across) != launch_of({**across, "SLURM_RESTART_COUNT": "1"})


def test_a_shell_around_each_rank_is_not_its_launcher(tmp_path: Path) -> None:
    shell = ["sh", "-c", f'"{sys.executable}" -c "$0"; true']
    program = "import os; from tbmem.runtime.process.run_folder import launch_of; print(launch_of(os.environ))"

    told = [
        subprocess.run([*shell, program], env={**os.environ, **more}, capture_output=True, text=True, check=True)
        for more in _ranks(2)
    ]

    assert told[0].stdout == told[1].stdout != ""


def test_a_callback_says_where_it_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = []
    for _ in range(2):
        with tbmem.MemoryCallback(run={"logdir": str(tmp_path), "name": "a"}, profiling={"enabled": False}) as memory:
            memory.step()
        folders.append(memory.folder)

    assert folders == [tmp_path / "a", tmp_path / "a_2"]
    assert [record.message for record in caplog.records if "earlier run" in record.message] == [
        f"{tmp_path / 'a'} holds an earlier run: this one writes to {tmp_path / 'a_2'}"
    ]


def test_two_recordings_of_a_name_are_compared_by_their_folders(tmp_path: Path) -> None:
    import torch

    recordings = []
    with only_own_tensors():
        for size in (1 << 18, 1 << 20):
            with tbmem.record("step", logdir=str(tmp_path)) as recording:
                torch.ones(size).add(1)
            recordings.append(recording)

    assert [each.folder.name for each in recordings] == ["step", "step_2"]
    assert len({path.parent for each in recordings for path in each.files}) == 2
    assert tbmem.compare(*[each.folder for each in recordings]).grown_percent > 100
