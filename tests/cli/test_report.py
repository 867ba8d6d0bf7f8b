"""`tbmem analyze` and `tbmem report` with a folder of results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import estimate_from_run
from tbmem.cli.entry import main
from tbmem.estimator.estimate import write_estimate
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tests.analysis.estimates.test_fit import run as simulated_run
from tests.offline.reports.test_folders import FILES, _log
from tests.offline.snapshots import write_snapshot

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tbmem", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_analyze_writes_a_report(run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[1 << 20])

    code, out, _ = run("analyze", "rank0.pickle", "--name", "mine")

    assert code == 0
    (folder,) = [path for path in (tmp_path / "results").iterdir() if not path.is_symlink()]
    assert folder.name.endswith("_mine")
    assert {path.name for path in folder.iterdir()} == FILES
    assert f"wrote results/{folder.name}/: look at report.html" in out


def test_json_writes_nothing_unless_asked(run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[1 << 20])

    plain = run("analyze", "rank0.pickle", "--json")
    assert not (tmp_path / "results").exists()
    both = run("analyze", "rank0.pickle", "--json", "--out", "x")

    assert json.loads(plain[1]) == json.loads(both[1])
    written = json.loads((tmp_path / "x" / "latest" / "analysis.json").read_text())
    assert written == json.loads(plain[1])


def test_bad_input_is_one_line_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.pickle").write_bytes(b"\x80\x04")

    code, out, err = run("analyze", "bad.pickle")

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.pickle"]


def test_a_folder_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[1 << 20])
    (tmp_path / "file").write_text("")

    code, _, err = run("analyze", "rank0.pickle", "--out", "file")

    assert (code, err.count("\n")) == (2, 1)
    assert "file" in err


def test_the_report_of_an_estimate_is_that_of_its_recording(run: Run, tmp_path: Path) -> None:
    # given the files of `tbmem estimate --out est`
    estimate = estimate_from_run(Job(model="gpt2", batch=8), simulated_run(), AllocatorSettings(), gpu_named("t4"))
    write_estimate("est", estimate, simulated_run())
    (recording,) = tmp_path.glob("est/*.npz")
    (figures,) = tmp_path.glob("est/*.estimate.json")

    # when any of them is reported, then the peak is the estimate's
    for named in ("est", recording, figures):
        code, out, err = run("report", named, "--out", "x", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["devices"]["0"]["peak_bytes"] == estimate.peak_allocated
        assert (tmp_path / "x" / "latest" / "report.html").is_file()
        assert run("report", named, "--html", "page.html")[0] == 0
        assert "Memory" in (tmp_path / "page.html").read_text()


def test_report(run: Run, tmp_path: Path) -> None:
    _log(tmp_path / "runs" / "first", 0)

    code, out, _ = run("report", "runs/first", "--out", "x")
    as_json = run("report", "runs/first", "--json")

    assert code == 0
    assert "run first of 19.0 s: 19 steps" in out
    assert "unknown: nothing for" in out
    assert (tmp_path / "x" / "latest" / "report.html").is_file()
    assert json.loads(as_json[1])["steps"] == 19
    assert run("report", "nowhere")[0] == 2
