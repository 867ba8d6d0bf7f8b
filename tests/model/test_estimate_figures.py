"""Figures of an estimate from its file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.estimate_figures import read_estimate

FIGURES: dict[str, Any] = {
    "job": {"model": "gpt2", "batch": 4, "optimizer": "adamw"},
    "peak_allocated": 100,
    "allocated_range": [90, 110],
    "outside": {"CUDA context and kernels": 5},
    "alternatives": [{"change": "batch 2", "reserved": 50, "fit": "fits"}],
}


def test_all_keys_are_kept() -> None:
    assert read_estimate(json.dumps({**FIGURES, "later": [1]}).encode()) == {**FIGURES, "later": [1]}


@pytest.mark.parametrize(
    "odd",
    [
        {"job": "gpt2"},
        {"peak_allocated": "much"},
        {"peak_allocated": 10**400, "allocated_range": [1]},
        {"allocated_range": [90, "x"]},
        {"alternatives": [1]},
        {"variants": {}},
    ],
)
def test_a_value_of_another_type_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(FileFormatError, match="not the figures of an estimate"):
        read_estimate(json.dumps({**FIGURES, **odd}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"[" * 100_000])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(FileFormatError):
        read_estimate(data)
