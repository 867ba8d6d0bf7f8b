"""What each repetition of the same work keeps."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.repeated_work import growth_per_repetition


@pytest.mark.parametrize(
    ("levels", "kept"),
    [
        ([5000 + 1000 * step for step in range(20)], 1000),
        ([5000] * 20, 0),
        ([5000 - 100 * step for step in range(20)], 0),
        ([min(5000 + 1000 * step, 9000) for step in range(20)], 0),  # a cache that fills
        ([5000 if step < 12 else 9000 for step in range(20)], 0),  # a new level
        ([5000 + 1000 * (step // 2) for step in range(20)], 500),  # every other time
        ([5000 + (4000 if step % 3 == 0 else 0) for step in range(21)], 0),
    ],
)
def test_what_is_kept(levels: list[int], kept: float) -> None:
    assert growth_per_repetition(levels) == pytest.approx(kept, rel=0.1)


def test_few_repetitions_tell_nothing() -> None:
    assert growth_per_repetition([1, 2, 3]) is None
