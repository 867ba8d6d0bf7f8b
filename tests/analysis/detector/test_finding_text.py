"""Verdicts of runs without a problem."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector import excursion_text, finding_text
from tbmem.analysis.detector.spike_test import Excursion, ExcursionEvent, ExcursionKind
from tbmem.model.evidence import Channel
from tbmem.model.sample import MemorySample
from tests.conftest import MIB


@pytest.mark.parametrize(("step", "words"), [(170, "every 50"), (300, "until step 150, every 50")])
def test_a_period_that_has_not_shown_for_long_says_until_when_it_did(step: int, words: str) -> None:
    excursion = Excursion(ExcursionKind.PERIODIC, 150, 150, 800 * MIB, 500 * MIB, 50, (50, 100, 150))
    sample = MemorySample(step=1, time=1001.0, device="cpu")
    noted = excursion_text.periodic(sample, ExcursionEvent(150, Channel.HOST, excursion, updated=True))

    found = finding_text.stable(sample._replace(step=step), MIB, 2 * MIB, 250, noted)

    assert f"evaluated steps · {words} steps (50, 100, 150) memory reaches" in found.message
