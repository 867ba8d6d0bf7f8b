"""The sentences of growth say how long it lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbmem.analysis.detector import growth_text
from tbmem.model.evidence import Channel, Conclusion, Outcome
from tbmem.model.sample import MemorySample
from tests.conftest import MIB
from tests.model.test_evidence import make_suspicion

SEEN = make_suspicion(20, 150, 1.0 * MIB, channel=Channel.HOST)


@pytest.mark.parametrize(("rate", "said"), [(1.0, False), (0.6, False), (0.4, True)])
def test_growth_that_came_at_once_says_so(rate: float, said: bool) -> None:
    seen, sample = replace(SEEN, bytes_per_step=rate * MIB), MemorySample(step=160, time=1160.0, device="cpu")

    found = growth_text.growing(sample, seen, None)

    assert ("(+130.00 MiB so far, most of it at once)" in found.message) is said


@pytest.mark.parametrize(("rises", "said"), [(1, "once"), (3, "3 times")])
def test_growth_by_a_few_rises_has_no_rate(rises: int, said: str) -> None:
    # given
    seen, sample = replace(SEEN, rises=rises), MemorySample(step=160, time=1160.0, device="cpu")
    # when
    found = growth_text.growing(sample, seen, None)
    # then
    assert found.message.startswith(f"the resident memory of the process rose {said} since step ")
    assert "(+130.00 MiB so far)" in found.message
    assert found.message.endswith(" · too few rises to call it a leak")


@pytest.mark.parametrize("stands", [False, True])
def test_growth_that_stands_still_says_so(stands: bool) -> None:
    # given
    seen, sample = SEEN, MemorySample(step=300, time=1300.0, device="cpu")
    # when
    found = growth_text.growing(sample, seen, None, stands=stands)
    # then
    assert (" grew since step " in found.message) is stands
    assert ("(+130.00 MiB) and has not gone on since step 150 · " in found.message) is stands
    assert found.evidence.get("ended_step") == (150 if stands else None)


def test_steps_that_are_not_evaluated_are_left_out_of_growth_that_stands() -> None:
    # given
    seen = replace(SEEN, judged_steps=100, bytes_per_step=0.4 * MIB)
    # when
    found = growth_text.growing(MemorySample(step=300, time=1300.0, device="cpu"), seen, None, stands=True)
    # then
    assert "(+130.00 MiB in 100 evaluated steps of 130, most of it at once) and has not gone on since" in found.message


@pytest.mark.parametrize(("full_at", "said"), [(None, False), (150, False), (120, True)])
def test_what_should_have_been_full_by_now_fills_more_slowly(full_at: int | None, said: bool) -> None:
    # given growth up to step 150
    sample = MemorySample(step=160, time=1160.0, device="cpu")
    reason = "deque 'buffer' fills: 25 of 40 as of step 60"
    fills = Conclusion(outcome=Outcome.DISMISSED, step=60, reason=reason, ends_at=full_at)
    # when
    found = growth_text.growing(sample, SEEN, fills)
    # then
    assert (" as of step 60 · it fills more slowly than in step 60" in found.message) is said


def test_growth_that_has_ended_names_what_held_it() -> None:
    # given a loss that is summed with its graph, while memory stays where it is
    sample = MemorySample(step=300, time=1300.0, device="cpu")
    held = Conclusion(outcome=Outcome.CONFIRMED, step=60, reason="held by tensor 'total'", advice="use .item()")
    # when
    found = growth_text.retracted(sample, SEEN, held, fell=False)
    # then
    assert found.message.endswith("so far it is not a leak · held by tensor 'total'")
    assert found.advice == "use .item()"
