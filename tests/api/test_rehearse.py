"""tbmem.rehearse: programs and functions, the search, and the command's own JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tbmem
from tbmem.api.rehearse import rehearse
from tbmem.errors import UsageError
from tbmem.model import rehearsal as model
from tbmem.rehearsal import rehearse as engine
from tbmem.rehearsal.rehearse import Program
from tests.cli.conftest import Run, run
from tests.rehearsal.records import GIB, process, rehearsal

__all__ = ["run"]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """What would have been run; up to a value of 5 in the last word it fits."""
    seen: list[Program] = []

    def rehearsed(program: Program, *, output: Any = None) -> model.Rehearsal:
        seen.append(program)
        last = program.words[-1].rpartition("=")[2]
        batch = int(last) if last.isdigit() else 1
        made = process(reserved=min(39, 4 + 7 * batch) * GIB, out_of_memory=batch > 5)
        return rehearsal(made, program=program.title or "train.py")

    monkeypatch.setattr(engine, "run", rehearsed)
    return seen


def test_the_command_prints_what_is_returned(run: Run, programs: list[Program]) -> None:
    result = rehearse("train.py", "--lr", 3, gpu="a100-40gb", steps=5)

    text = run("rehearse", "--gpu", "a100-40gb", "--steps", 5, "--", "train.py", "--lr", 3)
    as_json = run("rehearse", "--gpu", "a100-40gb", "--steps", 5, "--json", "--", "train.py", "--lr", 3)

    assert programs[0] == programs[1] == programs[2]
    assert text.out == f"{result}\n"
    assert json.loads(as_json.out) == json.loads(result.to_json())


def test_the_short_form(programs: list[Program]) -> None:
    result = rehearse("train.py", "1")

    assert isinstance(result, tbmem.Rehearsal)
    assert result.fits
    assert repr(result).splitlines()[0].startswith("Rehearsal of train.py on ")
    assert repr(result).splitlines()[1] == "  It fits, with 28.00 GiB left."


def test_the_largest(run: Run, programs: list[Program]) -> None:
    trials: list[int] = []

    answer = rehearse("train.py", "{}", largest="batch=1..64", on_trial=lambda _, trial: trials.append(trial.value))
    as_json = run("rehearse", "--largest", "batch=1..64", "--json", "train.py", "{}")

    assert (answer.value, repr(answer)) == (5, "The largest batch that fits is 5.")
    assert 6 in trials
    assert isinstance(answer.result, tbmem.Rehearsal)
    assert json.loads(as_json.out) == json.loads(answer.to_json())


def test_a_function_is_called_with_the_values_of_the_search(programs: list[Program]) -> None:
    def train(batch: int = 1) -> None: ...

    whole = rehearse(train, 3)
    answer = rehearse(train, largest="batch=1..64")

    assert (whole.program, programs[0].words[:2]) == ("train()", ["-m", "tbmem.rehearsal.function"])
    assert answer.value == 5
    assert programs[-1].words[-1] == "batch=5"


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("train.py", {"kwargs": {"a": 1}}, "kwargs belong to a function"),
        ("train.py", {"gpus": 0}, "gpus is 0"),
        ("train.py", {"steps": -1}, "from 0 on"),
        ("train.py", {"gpu": "abacus"}, "abacus"),
        ("train.py", {"largest": "batch"}, "batch_size=1..256"),
        (3, {}, "a int cannot be rehearsed"),
    ],
)
def test_wrong_input_is_an_error(program: Any, options: dict[str, Any], message: str, programs: list[Program]) -> None:
    with pytest.raises(UsageError, match=message):
        rehearse(program, **options)
