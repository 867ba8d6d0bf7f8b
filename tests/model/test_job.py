"""What a job cannot be is said in the words of the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.model.job import Job


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"replicate": 0}, "--ddp is 0; it must be 1 or more"),
        ({"tensor": -1}, "--tp is -1; it must be 1 or more"),
        ({"batch": 0}, "batch is 0; it must be 1 or more"),
        ({"clip": 0.0}, "clip is 0.0; it must be above 0"),
        ({"clip": float("nan")}, "clip is nan; it must be above 0"),
    ],
)
def test_what_cannot_be_is_one_line(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Job(model="gpt2", **asked)
