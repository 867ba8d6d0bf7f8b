"""The benchmark that judges loops: what it makes of files and of runs, and two loops from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import PROJECT

SCRIPT = PROJECT / "benchmarks" / "verdicts.py"
LEAK = """
LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "  kept.append(x) "
SOURCE = "owner/repo#1"
ONSET = 7

def make():
    return lambda i: None
"""
LINE = {"file": "", "line": 3, "function": "step", "text": "kept.append(x)  # all of them"}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def finding(kind: str, last_step: int = 50, **evidence: Any) -> dict[str, Any]:
    return {"kind": kind, "last_step": last_step, "message": f"a {kind}", "evidence": evidence}


def told(*findings: dict[str, Any]) -> dict[str, Any]:
    return {"verdicts": list(findings), "findings": [], "problems": []}


def test_a_loop_tells_the_truth_without_being_run(verdicts: ModuleType, tmp_path: Path) -> None:
    # given
    write(tmp_path, "kept.py", LEAK + "raise SystemExit\n")
    write(tmp_path, "_shared.py", "")
    # when
    (loop,) = verdicts.read_loops(tmp_path)
    # then
    assert (loop.label, loop.accept, loop.leak_line, loop.onset) == ("leak", ("leak",), "kept.append(x)", 7)
    assert loop.must_be_found


def test_before_its_onset_a_leak_may_be_called_stable(verdicts: ModuleType, tmp_path: Path) -> None:
    # given
    loop = verdicts.read_loop(write(tmp_path, "kept.py", LEAK))
    # then
    assert loop.within(8) == loop
    assert loop.within(7).accept == ("leak", "stable")
    assert not loop.within(7).must_be_found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no loops"),
        ("LABEL = 'leak'", "no function make"),
        (LEAK.replace('"leak"', '"lark"'), "LABEL and ACCEPT must be of"),
        (LEAK.replace('("leak",)', '("leak", "spoke")'), "LABEL and ACCEPT must be of"),
        ("def make(: pass", "invalid syntax"),
        ("LABEL = 'le' + who()\ndef make(): pass", "malformed"),
    ],
)
def test_wrong_input_is_one_line_and_2(
    verdicts: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, reason: str
) -> None:
    # given
    if text is not None:
        write(tmp_path, "wrong.py", text)
    # when
    code = verdicts.main(["--loops", str(tmp_path)])
    # then
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert reason in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        (["stable", "leak", "spike"], "leak"),
        (["level_shift", "spike"], "spike"),
        (["growing", "periodic", "suspect", "short_run"], "stable"),
        ([], "stable"),
    ],
)
def test_the_gravest_verdict_counts(verdicts: ModuleType, kinds: list[str], verdict: str) -> None:
    assert verdicts.overall_verdict(kinds) == verdict


def test_a_leak_is_judged_with_line_holder_and_delay(verdicts: ModuleType, tmp_path: Path) -> None:
    # given
    loop = verdicts.read_loop(write(tmp_path, "kept.py", LEAK))
    line = {**LINE, "file": str(loop.path)}
    leak = finding("leak", line=line, holder="list 'kept'", suspected_step=20, confirmed_step=31)
    # when
    row = verdicts.judge(loop, told(leak, finding("spike")))
    # then
    assert row["correct"]
    assert row["line_named"]
    assert (row["holder"], row["suspected_step"], row["confirmed_step"]) == ("list 'kept'", 20, 31)
    assert (row["delay"], row["first_said_step"], row["kinds_said"]) == (24, 50, ["leak", "spike"])
    assert json.loads(json.dumps(row)) == row


def test_only_a_line_of_the_loops_in_a_leak_counts(verdicts: ModuleType, tmp_path: Path) -> None:
    # given
    loop = verdicts.read_loop(write(tmp_path, "kept.py", LEAK))
    here, elsewhere = {**LINE, "file": str(loop.path)}, {**LINE, "file": str(SCRIPT)}
    other = {**here, "text": "x = make()"}
    # when
    named = {
        name: verdicts.judge(loop, told(found))["line_named"]
        for name, found in {
            "in the second line": finding("leak", line=other, lines=[other, here]),
            "elsewhere": finding("leak", line=elsewhere),
            "another line": finding("leak", line=other),
            "of a suspicion": finding("suspect", line=here),
            "none": finding("leak", line=None),
        }.items()
    }
    # then
    assert [name for name, is_named in named.items() if is_named] == ["in the second line"]


def test_a_crash_is_a_wrong_verdict_with_its_reason(verdicts: ModuleType, tmp_path: Path) -> None:
    # given
    loop = verdicts.read_loop(write(tmp_path, "kept.py", LEAK))
    # when
    row = verdicts.judge(loop, {"failure": "crash", "error": "exit status 1: ValueError: no"})
    # then
    assert (row["verdict"], row["correct"], row["error"]) == ("crash", False, "exit status 1: ValueError: no")
    assert verdicts.overhead([{"seconds": {}}], [{"failure": "crash"}]) is None


def test_one_wrong_run_of_several_counts(verdicts: ModuleType) -> None:
    # given
    rows = [{"verdict": "leak", "correct": True}, {"verdict": "stable", "correct": False}]
    # when
    row = verdicts.merge(rows)
    # then
    assert row == {"verdict": "stable", "correct": False, "verdicts": ["leak", "stable"], "flaky": True}


def test_the_scores(verdicts: ModuleType, tmp_path: Path) -> None:
    # given five loops and what was said of them
    cases = [
        ("leak", ("leak",), "leak", True),
        ("leak", ("leak",), "stable", False),
        ("leak", ("leak", "stable"), "leak", False),  # counts for the lines, not for the recall
        ("stable", ("spike", "stable"), "spike", False),  # allowed
        ("stable", ("stable",), "spike", False),
        ("spike", ("spike",), "crash", False),
    ]
    loops, rows = [], []
    for number, (label, accept, verdict, named) in enumerate(cases):
        loops.append(verdicts.Loop(tmp_path / f"{number}.py", label, accept, "x", "", 0))
        row = {"name": str(number), "label": label, "verdict": verdict, "correct": verdict in accept, "flaky": False}
        rows.append({**row, "line_named": named})
    # when
    scores = verdicts.score(loops, rows)
    # then
    assert (scores["recall"], scores["lines_named"]) == (0.5, 0.5)
    assert (scores["missed"], scores["false_alarms"]) == (["1"], ["4"])
    assert (scores["failures"], scores["missed_spikes"]) == (["5"], ["5"])
    assert scores["confusion"]["stable"] == {"spike": 2}


def test_without_leaks_there_is_no_recall(verdicts: ModuleType) -> None:
    scores = verdicts.score([], [])

    assert scores["recall"] is None
    assert scores["lines_named"] is None


def test_overhead_is_the_median_of_the_runs(verdicts: ModuleType) -> None:
    # given
    runs = [{"seconds": {"mean_step": mean, "median_step": 1.0, "total": 10.0}} for mean in (3.0, 1.0, 2.0)]
    # when
    seconds = verdicts.overhead(runs, runs[:1])
    # then
    assert (seconds["plain_mean_step"], seconds["watched_mean_step"]) == (2.0, 3.0)


def run_script(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, str(SCRIPT), "--loops", str(folder), "--steps", "20", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_loops_are_run_and_closed_and_a_crash_is_not_hidden(tmp_path: Path) -> None:
    # given a quiet loop that has to be closed, and one that raises
    stable = LEAK.replace('"leak"', '"stable"')
    closed = f"step = lambda i: None; step.close = lambda: open({str(tmp_path / 'closed')!r}, 'w').close(); return step"
    write(tmp_path, "quiet.py", stable.replace("return lambda i: None", closed))
    write(tmp_path, "raising.py", stable.replace("return lambda i: None", "raise KeyError('why')"))
    # when
    code, result = run_script(tmp_path)
    # then
    quiet, raising = result["loops"]
    assert (quiet["verdict"], raising["verdict"], code) == ("stable", "crash", 1)
    assert quiet["seconds"]["watched_total"] > 0
    assert (tmp_path / "closed").exists()
    assert "KeyError: 'why'" in raising["error"]


@pytest.mark.slow
def test_a_loop_that_does_not_end_is_given_up_with_its_children(tmp_path: Path) -> None:
    # given
    endless = "import subprocess; subprocess.Popen(['sleep', '60']).wait()"
    write(tmp_path, "endless.py", LEAK.replace("return lambda i: None", endless))
    # when
    code, result = run_script(tmp_path, "--limit", "3")
    # then
    assert (result["loops"][0]["verdict"], result["failures"], code) == ("timeout", ["endless"], 1)
