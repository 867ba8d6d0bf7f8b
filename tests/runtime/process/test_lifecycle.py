"""Which exception ended a run that was not told of one."""

from __future__ import annotations

import sys

import pytest

from tbmem.runtime.process.lifecycle import LastError, Rank, failure, find_rank

NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory")


def test_one_on_its_way_as_in_finally() -> None:
    last = LastError()
    found: list[BaseException | None] = []

    def train() -> None:
        try:
            raise KeyError("mine")
        finally:
            found.append(last.find())

    with pytest.raises(KeyError):
        train()
    assert isinstance(found[0], KeyError)
    assert last.find() is None


def test_one_that_is_handled_around_the_run_is_not_its_own() -> None:
    try:
        raise MemoryError
    except MemoryError:
        last = LastError()  # a smaller batch is tried
        assert last.find() is None


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), GeneratorExit()])
def test_an_end_in_order_is_no_failure(error: BaseException) -> None:
    last = LastError()
    try:
        raise error
    except BaseException:
        assert last.find() is None
    assert failure(error) is None


def test_one_that_the_interpreter_printed_before_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    last = LastError()
    monkeypatch.setattr(sys, "last_value", NO_MEMORY, raising=False)

    assert last.find() is NO_MEMORY
    assert LastError().find() is None


@pytest.mark.parametrize(("error", "counts"), [(ValueError("a cell"), False), (NO_MEMORY, True)])
def test_in_an_interactive_session_a_failed_cell_ends_nothing(
    error: Exception, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = LastError()
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    monkeypatch.setattr(sys, "last_value", error, raising=False)

    assert (last.find() is error) is counts


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, Rank(0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Rank(3, 8)),
        ({"RANK": "3"}, Rank(0, 1)),
        ({"RANK": "x", "WORLD_SIZE": "8"}, Rank(0, 1)),
        ({"RANK": "9", "WORLD_SIZE": "8"}, Rank(0, 1)),
    ],
)
def test_rank_from_the_launchers_variables(environment: dict[str, str], rank: Rank) -> None:
    assert find_rank(environment) == rank
