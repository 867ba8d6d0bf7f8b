"""The command line of `tbmem rehearse`: what belongs to tbmem, exit codes, JSON, the search."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import Any

import pytest

from tbmem.cli.rehearse import _split
from tbmem.errors import UsageError
from tbmem.model.rehearsal import Rehearsal
from tbmem.rehearsal import rehearse
from tbmem.rehearsal.rehearse import Program
from tests.cli.conftest import Run
from tests.conftest import PROJECT
from tests.rehearsal.records import GIB, process, rehearsal

Programs = list[Program]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """What would have been run, each with the batch in its last word: up to 5 fit, and 66 is refused by the program."""
    seen: Programs = []

    def run(program: Program, *, output: Any = None) -> Rehearsal:
        seen.append(program)
        last = program.words[-1].rpartition("=")[2]
        batch = int(last) if last.isdigit() else 1
        if batch == 66:
            if output is not None and output is not sys.stderr:
                output.write(b"ValueError: 66\n")
            raise UsageError("train.py: the program failed by itself")
        return rehearsal(process(reserved=min(39, 4 + 7 * batch) * GIB, out_of_memory=batch > 5), program="train.py")

    monkeypatch.setattr(rehearse, "run", run)
    return seen


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        ("--gpu t4 -- train.py --steps 5", "--gpu t4", "train.py --steps 5"),
        ("--gpu t4 --json train.py --gpu 3", "--gpu t4 --json", "train.py --gpu 3"),
        ("--gpu=t4 -m package.train", "--gpu=t4", "-m package.train"),
        ("torchrun --nproc-per-node 2 train.py", "", "torchrun --nproc-per-node 2 train.py"),
        ("--help", "--help", ""),
    ],
)
def test_where_the_program_begins(words: str, options: str, program: str) -> None:
    assert _split(words.split()) == (options.split(), program.split())


def test_it_fits(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--gpu", "a100-40gb", "--gpus", 2, "--steps", 5, "--", "train.py", 1)

    assert done.code == 0
    assert "It fits, with 28.00 GiB left." in done.out
    (program,) = programs
    assert (program.gpu.name, program.gpus, program.steps, program.logdir) == ("a100-40gb", 2, 5, "runs")


def test_it_does_not_fit(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--world-size", 8, "--rank", 3, "--", "train.py", 9)

    assert done.code == 1
    assert "It does not fit" in done.out
    assert (programs[0].world_size, programs[0].rank) == (8, 3)


def test_json(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--json", "train.py", 1)

    assert json.loads(done.out)["fits"] is True


def test_the_largest(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--largest", "batch=1..64", "--logdir", "kept", "--", "train.py", "--batch", "1")

    # then each trial has a line, only the answer is recorded, and is shown
    assert done.code == 0
    assert "  batch 6: out of memory\n" in done.out
    assert "The largest batch that fits is 5.\n" in done.out
    assert [program.is_recorded for program in programs] == [False] * (len(programs) - 1) + [True]
    assert (programs[-1].words, programs[-1].logdir) == (["train.py", "--batch", "5"], "kept")
    assert "kept" not in {program.logdir for program in programs[:-1]}


def test_the_largest_as_json(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--largest", "batch=1..64", "--json", "train.py", "--batch", "{}")

    view = json.loads(done.out)
    assert (view["value"], view["is_bounded"], view["result"]["fits"]) == (5, True, True)


def test_none_of_the_range_fits(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--largest", "batch=8..64", "train.py", "--batch", "{}")

    assert done.code == 1
    assert "No batch of the range fits" in done.out


def test_a_program_that_fails_in_a_trial_shows_its_message(run: Run, programs: Programs) -> None:
    done = run("rehearse", "--largest", "batch=66..99", "train.py", "--batch", "{}")

    assert done.code == 2
    assert done.err == "ValueError: 66\ntbmem rehearse: train.py: the program failed by itself\n"


PAGE = re.findall(r"```bash\n(.*?)```", (PROJECT / "docs" / "rehearse.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("line", [line for block in PAGE for line in block.splitlines()])
def test_the_lines_of_the_page(line: str, run: Run, programs: Programs) -> None:
    done = run(*shlex.split(line)[1:])

    assert done.code == 0, done.err
    assert programs[-1].words[0] in ("train.py", "-m", "torchrun")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpu", "abacus", "train.py", "1"), "--gpu abacus"),
        (("--largest", "batch", "train.py", "1"), "batch_size=1..256"),
        (("--largest", "depth=1..4", "train.py", "1"), "do not name it"),
        (("--gpus", "0", "train.py", "1"), "--gpus"),
        ((), "no script to rehearse"),
    ],
)
def test_wrong_input_is_one_line(words: tuple[str, ...], message: str, run: Run, programs: Programs) -> None:
    done = run("rehearse", *words)

    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
