"""Healthy loops that evaluate every few steps are stable."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT


@pytest.fixture(scope="module")
def evaluations() -> ModuleType:
    """benchmarks/evaluations.py as a module."""
    return load(PROJECT / "benchmarks" / "evaluations.py")


def test_no_evaluation_is_a_spike_or_a_change_of_level(evaluations: ModuleType) -> None:
    assert Counter(row["verdict"] for row in evaluations.judged(400)) == {"stable": 400}
