"""The search for the largest value, and where in a command line it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tbmem.errors import UsageError
from tbmem.model.rehearsal import Largest, Rehearsal
from tbmem.rehearsal.largest import Range, find_largest, substituted
from tests.rehearsal.records import GIB, process, rehearsal

ROOM = 39 * GIB


def _search(reserved: Callable[[int], int], low: int = 1, high: int = 256) -> Largest:
    def rehearse(words: list[str]) -> Rehearsal:
        need = reserved(int(words[-1]))
        return rehearsal(process(reserved=min(need, ROOM), out_of_memory=need > ROOM))

    *_, answer = find_largest(["train.py", "--n", "{}"], Range("n", low, high), rehearse)
    return answer


@pytest.mark.parametrize("largest", [1, 2, 3, 37, 100, 255])
def test_a_straight_line_is_found_in_few_trials(largest: int) -> None:
    answer = _search(lambda value: 2 * GIB + value * ((ROOM - 2 * GIB) // largest))

    assert answer.value == largest
    assert answer.is_bounded
    assert {largest: True, largest + 1: False}.items() <= {trial.value: trial.fits for trial in answer.trials}.items()
    assert len(answer.trials) <= 7


@pytest.mark.parametrize(
    "reserved",
    [
        lambda value: value**2 * 10 * (1 << 20),
        lambda value: 30 * GIB if value < 50 else (ROOM if value < 64 else ROOM + 1),
        lambda value: int(value**0.5 * 5 * GIB),
        lambda value: GIB if value < 200 else ROOM + 1,
    ],
    ids=["square", "stairs", "root", "cliff"],
)
def test_other_shapes_are_found_as_well(reserved: Callable[[int], int]) -> None:
    answer = _search(reserved)

    assert answer.value is not None
    assert reserved(answer.value) <= ROOM < reserved(answer.value + 1)
    assert len(answer.trials) <= 8 + 8


def test_the_end_of_the_range_fits() -> None:
    answer = _search(lambda value: GIB + value, high=64)

    assert (answer.value, answer.is_bounded) == (64, False)


def test_a_range_of_one_value() -> None:
    answer = _search(lambda value: GIB, low=8, high=8)

    assert (answer.value, answer.is_bounded, len(answer.trials)) == (8, False, 1)


def test_not_even_the_smallest_fits() -> None:
    answer = _search(lambda value: ROOM + 1, low=16)

    assert (answer.value, len(answer.trials)) == (None, 1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--batch-size", "{}"], ["train.py", "--batch-size", "7"]),
        (["train.py", "trainer.batch={}"], ["train.py", "trainer.batch=7"]),
        (["train.py", "--batch_size", "4", "x"], ["train.py", "--batch_size", "7", "x"]),
        (["train.py", "--batch-size", "4"], ["train.py", "--batch-size", "7"]),
        (["train.py", "--batch_size=4"], ["train.py", "--batch_size=7"]),
        (["train.py", "batch_size=4"], ["train.py", "batch_size=7"]),
    ],
)
def test_where_the_value_is_written(words: list[str], expected: list[str]) -> None:
    assert substituted(words, "batch_size", 7) == expected


def test_an_option_of_the_script_that_is_not_on_the_command_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('parser.add_argument("--batch-size", type=int, default=4)\n')

    assert substituted([str(script)], "batch_size", 7) == [str(script), "--batch-size", "7"]


def test_an_argument_that_nothing_names() -> None:
    with pytest.raises(UsageError, match="do not name it; write --batch_size {}"):
        substituted(["train.py", "--lr", "3"], "batch_size", 7)


def test_ranges() -> None:
    assert Range.parse("batch_size=1..256") == ("batch_size", 1, 256)
    for wrong in ("batch_size", "batch_size=4", "batch_size=9..3", "batch_size=0..4", "=1..2"):
        with pytest.raises(UsageError, match=r"batch_size=1\.\.256"):
            Range.parse(wrong)
