"""The sentences of growth say how long it lasts."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector import growth_text
from tbmem.model.evidence import Channel, Suspicion
from tbmem.model.sample import MemorySample
from tests.conftest import MIB


@pytest.mark.parametrize(("last", "said"), [(200, False), (300, True)])
def test_growth_that_stands_still_says_so(last: int, said: bool) -> None:
    # given: growth from step 20 to step 150
    seen = Suspicion(
        device="cpu",
        channel=Channel.HOST,
        first_step=20,
        began=20,
        last_step=150,
        base=0,
        level=130 * MIB,
        bytes_per_step=1.0 * MIB,
        judged_steps=130,
    )
    sample = MemorySample(step=last, time=1000.0 + last, device="cpu")
    # when
    found = growth_text.growing(sample, seen, None)
    # then
    assert ("it has not gone on since step 150" in found.message) is said
