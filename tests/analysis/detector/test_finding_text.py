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


def test_a_verdict_on_the_resident_memory_alone_says_so() -> None:
    # given a run in which malloc's figures were read three times
    sample = MemorySample(step=300, time=1300.0, device="cpu")
    # when
    found = finding_text.stable(sample, 690 * MIB, 691 * MIB, 299, None, malloc_read=3)
    # then
    assert found.message == (
        "the resident memory of the process is stable at 690.00 to 691.00 MiB over 299 evaluated steps · malloc's"
        " figures, which take long to read in this heap, are of 3 of them only: what grows in its free memory does not"
        " show"
    )
    assert (found.evidence["channel"], found.evidence["read_steps"]) == ("host", 3)
