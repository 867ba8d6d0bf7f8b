"""`tbmem check` on a run of a real monitor, as a shell sees it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["--max-peak", "10TiB"], 0),
        (["--max-peak", "1MiB"], 1),
        (["--no-leak", "--max-growth", "1GiB/step"], 0),
        (["--no-leak", "--max-peak", "1MiB"], 1),
    ],
)
def test_check_tells_by_its_exit_code(limits: list[str], code: int, run: Run, finished_run: Path) -> None:
    done = run("check", finished_run, *limits)

    assert done.code == code
    assert ("FAIL" in done.out) is bool(code)


def test_check_against_a_baseline(run: Run, finished_run: Path, tmp_path: Path) -> None:
    # given a baseline that a run has written
    baseline = tmp_path / "baseline.json"
    wrote = run("check", finished_run, "--baseline", baseline, "--update-baseline")
    assert wrote.code == 0
    assert f"wrote {baseline}: rank 0 " in wrote.out

    # then the same run is as good as it, and one of a tenth of it is not
    assert run("check", finished_run, "--baseline", baseline, "--tolerance", "0%").code == 0
    data = json.loads(baseline.read_text())
    data["peaks"] = {place: peak // 10 for place, peak in data["peaks"].items()}
    baseline.write_text(json.dumps(data))
    assert run("check", finished_run, "--baseline", baseline).code == 1


def test_check_for_machines(run: Run, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_json = run("check", finished_run, "--max-peak", "1MiB", "--json", "--github")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = run("check", finished_run, "--max-peak", "1MiB", "--junit", tmp_path / "x.xml")
    view = json.loads(as_json.out)

    assert "::error title=tbmem max-peak::" in done.out
    assert ElementTree.parse(tmp_path / "x.xml").getroot().get("failures") == "1"
    assert view["holds"] is False
    assert as_json.err.startswith("::error title=tbmem max-peak::")


def test_the_newest_of_several_runs(run: Run, finished_run: Path, tmp_path: Path) -> None:
    # given a job that has run twice under one name
    first, second = tmp_path / "ci", tmp_path / "ci_2"
    shutil.copytree(finished_run, first)
    shutil.copytree(finished_run, second)
    (log,) = first.rglob("monitor.jsonl")
    os.utime(log, (1, 1))
    # when
    newest, named, several = (
        run("check", *words, "--no-leak") for words in ([tmp_path, "--newest"], [first], [tmp_path])
    )
    # then the earlier one is not taken for the last in silence
    assert newest.code == named.code == 0
    assert "note  the newest run: ci_2" in newest.out
    assert "note  ci_2 lies beside it, as a later run of the same name is called; --newest" in named.out
    assert several.code == 2
    assert "2 runs; name one of them, the newest first: ci_2, ci; or take that with --newest" in several.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--no-leak"], "nowhere: no such file or folder"),
        (["empty", "--no-leak"], "no run of tbmem"),
        (["text", "--no-leak"], "not a monitor log"),
        (["empty"], "nothing to check"),
        (["RUN", "--max-peak", "10G"], "--max-peak: '10G' is not a size"),
        (["RUN", "--max-peak", "100"], "--max-peak: '100' lacks its unit; write '100 MiB', or '100 B'"),
        (["RUN", "--max-growth", "1/step"], "--max-growth: '1' lacks its unit"),
        (["RUN", "--max-peak", "-1GiB"], "--max-peak: '-1GiB' is not a size; write a number that is not negative"),
        (["RUN", "--max-growth", "1MiB"], "--max-growth: '1MiB' does not say per what; write 1MiB/step"),
        (["RUN", "--tolerance", "much"], "'much' is no percentage"),
        (["RUN", "--tolerance", "-3%"], "'-3%' is no percentage of 0 or more"),
        (["RUN", "--tolerance", ""], "'' is no percentage of 0 or more"),
        (["RUN", "--no-leak", "--tolerance", "3%"], "it needs --baseline FILE"),
        (["RUN", "--baseline", "nowhere"], "--update-baseline writes one"),
        (["RUN", "--baseline", "text"], "not a baseline"),
        (["RUN", "--update-baseline"], "needs --baseline"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(
    arguments: list[str], message: str, run: Run, finished_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello\n")

    done = run("check", *[finished_run if word == "RUN" else word for word in arguments])

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
