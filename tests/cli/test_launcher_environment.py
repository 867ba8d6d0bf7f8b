"""Ranks from the variables of a launcher."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.cli.launcher_environment import with_environment
from tbmem.errors import UsageError

NOTHING: dict[str, Any] = {"rank": 0, "world_size": None, "fsdp": 1, "ddp": None, "tp": 1, "pp": 1, "ep": 1}


def test_rank_and_world_size_with_the_sizes_of_megatron() -> None:
    # given
    environment = {"RANK": "5", "WORLD_SIZE": "64", "TENSOR_MODEL_PARALLEL_SIZE": "2", "PP": "4"}
    # when
    options, origin = with_environment(NOTHING, environment)
    # then
    assert options == {**NOTHING, "rank": 5, "world_size": 64, "tp": 2, "pp": 4}
    assert origin == ("Ranks are those of the environment: WORLD_SIZE=64, RANK=5, TENSOR_MODEL_PARALLEL_SIZE=2, PP=4.")


def test_the_name_in_the_tracers_readme_is_taken_as_well() -> None:
    options, _ = with_environment(NOTHING, {"RANK": "0", "WORLD_RANK": "8"})

    assert (options["rank"], options["world_size"]) == (0, 8)


@pytest.mark.parametrize("given", [{"rank": 1}, {"world_size": 4}, {"tp": 2}, {"fsdp": 8}, {"ddp": 2}])
def test_options_that_name_ranks_are_all_that_counts(given: dict[str, int]) -> None:
    options = {**NOTHING, **given}

    assert with_environment(options, {"RANK": "5", "WORLD_SIZE": "64", "TP": "2"}) == (options, "")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"WORLD_SIZE": "8"},
        {"RANK": "3"},
        {"TP": "2"},
        {"RANK": "", "WORLD_SIZE": "2"},
    ],
    ids=str,
)
def test_an_incomplete_or_single_world_is_none(environment: dict[str, str]) -> None:
    assert with_environment(NOTHING, environment) == (NOTHING, "")


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(UsageError, match="TP=two: in the environment, must be a whole number"):
        with_environment(NOTHING, {"RANK": "0", "WORLD_SIZE": "2", "TP": "two"})
