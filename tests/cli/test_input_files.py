"""What commands say of logs with damaged records, and of what is no file: one line and exit code 2."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tbmem.model.files import MONITOR_LOG
from tests.cli.conftest import Run
from tests.offline.queries.folder import Folder
from tests.offline.snapshots import write_snapshot

_TOLD = "1 damaged record of its log left out"


@pytest.fixture
def damaged_run(tmp_path: Path) -> Path:
    """A run whose header has a rank that is none."""
    path = Folder(tmp_path / "runs").log("a")
    path.write_text(path.read_text().replace('"rank":0', '"rank":"x"', 1))
    return tmp_path / "runs/a"


@pytest.mark.parametrize(
    "words", [("watch", "RUN", "--once"), ("check", "RUN", "--max-peak", "10GiB"), ("compare", "RUN", "RUN")]
)
def test_damaged_records_are_counted(words: tuple[str, ...], run: Run, damaged_run: Path) -> None:
    done = run(*(damaged_run if word == "RUN" else word for word in words))

    assert (done.code, done.err) == (0, "")
    assert _TOLD in done.out


def test_damaged_records_in_json(run: Run, damaged_run: Path) -> None:
    (view,) = json.loads(run("watch", damaged_run, "--json").out)
    report = json.loads(run("report", damaged_run, "--json").out)

    assert view["ranks"][0]["skipped_records"] == 1
    assert report["notes"] == [f"Rank 0: {_TOLD}."]


def test_a_log_of_several_that_cannot_be_read(run: Run, damaged_run: Path) -> None:
    (damaged_run.parent / "b" / MONITOR_LOG).parent.mkdir(parents=True)
    (damaged_run.parent / "b" / MONITOR_LOG).write_text("hello\n")

    done = run("watch", damaged_run.parent, "--once", "--all")

    assert done.code == 0
    assert "a · ended in order" in done.out
    assert "cannot be read: " in done.out


@pytest.mark.parametrize("text", ["[]", '{"schema": 1, "peaks": {"rank 0 cuda:0": 1e400}}', "[" * 100_000, "\xff"])
def test_a_baseline_that_is_none(text: str, run: Run, damaged_run: Path, tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text(text, "latin-1")

    done = run("check", damaged_run, "--baseline", tmp_path / "baseline.json")

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"tbmem check: {tmp_path / 'baseline.json'}: not a baseline of tbmem")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("text", ["[" * 1500, "a: " + "{a: " * 1500, "2001-99-99", "a: !!int x", "? [a]\n: b", "\0"])
@pytest.mark.parametrize("words", [("config", "-c", "FILE"), ("analyze", "RECORDING", "--rules", "FILE", "--json")])
def test_yaml_that_is_none(text: str, words: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    given = {"FILE": tmp_path / "a.yaml", "RECORDING": write_snapshot(tmp_path / "a.pickle", sizes=[1000])}

    done = run(*(given.get(word, word) for word in words))

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"tbmem {words[0]}: {tmp_path / 'a.yaml'}: ")
    assert done.err.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here whose reading fails")
@pytest.mark.parametrize(
    "words",
    [
        *(
            ("analyze", "FILE"),
            ("analyze", "FILE", "--json"),
            ("compare", "FILE", "RECORDING"),
            ("config", "-c", "FILE"),
        ),
        *(
            ("export", "FILE", "--to", "csv"),
            ("report", "LOG"),
            ("report", "LOG", "--json"),
            ("check", "LOG", "--no-leak"),
        ),
        *(
            ("check", "RUN", "--baseline", "FILE"),
            ("analyze", "RECORDING", "--rules", "FILE"),
            ("estimate", "FILE.json"),
        ),
    ],
)
def test_a_failing_disk_is_one_line(words: tuple[str, ...], run: Run, damaged_run: Path, tmp_path: Path) -> None:
    # given files that open, and whose first byte cannot be read: address 0 is in no process
    for name in ("a.pickle", "config.json"):
        (tmp_path / name).symlink_to("/proc/self/mem")
    (tmp_path / "b" / MONITOR_LOG).parent.mkdir(parents=True)
    (tmp_path / "b" / MONITOR_LOG).symlink_to("/proc/self/mem")
    given = {"FILE": tmp_path / "a.pickle", "LOG": tmp_path / "b", "RUN": damaged_run}
    given |= {"FILE.json": tmp_path / "config.json", "RECORDING": write_snapshot(tmp_path / "c.pickle", sizes=[1000])}
    # when
    done = run(*(given.get(word, word) for word in words))
    # then
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "Input/output error" in done.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize(
    "words",
    [
        *(("watch", "PIPE", "--once"), ("watch", "LOG", "--once"), ("check", "LOG", "--no-leak")),
        *(("check", "RUN", "--baseline", "PIPE"), ("check", "RUN", "--baseline", "PIPE", "--update-baseline")),
        *(("report", "LOG"), ("report", "LOG", "--html", "x.html"), ("report", "PIPE", "--json")),
        *(("analyze", "PIPE"), ("analyze", "RECORDING", "--rules", "PIPE"), ("config", "-c", "PIPE")),
        *(("analyze", "PIPE", "--what-if", "expandable_segments:True"), ("export", "PIPE", "--to", "csv")),
        *(("export", "RECORDING", "--to", "csv", "--out", "PIPE"), ("compare", "PIPE", "RECORDING")),
        *(("compare", "LOG", "RUN"), ("estimate", "PIPE")),
    ],
)
def test_a_pipe_is_not_waited_for(words: tuple[str, ...], run: Run, damaged_run: Path, tmp_path: Path) -> None:
    # given a pipe that nobody writes to or reads, and one in the place of a live log
    os.mkfifo(tmp_path / "a.pt.trace.json")
    (tmp_path / "b" / MONITOR_LOG).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / "b" / MONITOR_LOG)
    given = {"PIPE": tmp_path / "a.pt.trace.json", "LOG": tmp_path / "b", "RUN": damaged_run}
    given["RECORDING"] = write_snapshot(tmp_path / "a.pickle", sizes=[1000])
    # when
    done = run(*(given.get(word, word) for word in words))
    # then
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "a named pipe" in done.err


def test_a_file_in_the_place_of_a_folder_is_told(run: Run, tmp_path: Path) -> None:
    # given
    recording, taken = write_snapshot(tmp_path / "a.pickle", sizes=[1000]), tmp_path / "taken.yaml"
    taken.write_text("a: 1\n")
    # when
    done = run("analyze", recording, "--out", taken)
    # then
    said = f"tbmem analyze: {taken}: no report can be written there: this is a file; --out names a folder\n"
    assert (done.code, done.err) == (2, said)
    assert taken.read_text() == "a: 1\n"
