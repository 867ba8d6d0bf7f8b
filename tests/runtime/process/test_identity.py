"""Which rank this process is."""

from __future__ import annotations

import pytest

from tbmem.runtime.process.identity import Rank, find_rank


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
