"""What follows from the fields of a holder, a site and the observed steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tbmem.model.evidence import Channel, CodeLine, Conclusion, Evidence, Holder, HolderKind, Outcome, Site, Suspicion


def make_suspicion(first: int, last: int, per_step: float, **others: Any) -> Suspicion:
    """Growth of the CPU's memory by so many bytes in each of some steps, from nothing; other fields by name."""
    steps = last - first
    values: dict[str, Any] = {
        "device": "cpu",
        "channel": Channel.ALLOCATED,
        "began": first,
        "base": 0,
        "level": round(steps * per_step),
        "judged_steps": steps,
        **others,
    }
    return Suspicion(first_step=first, last_step=last, bytes_per_step=per_step, **values)


@pytest.mark.parametrize(
    ("length", "per_step", "bound", "left"),
    [
        (25, 1.0, 40, 15),
        (25, 2.0, 40, 8),  # 7.5 steps
        (40, 1.0, 40, 0),
        (41, 1.0, 40, 0),  # an lru_cache may be seen while it is over its bound
        (25, 0.0, 40, None),
        (25, -1.0, 40, None),
        (25, 1.0, None, None),
    ],
)
def test_a_bounded_holder_that_grows_has_steps_left(
    length: int, per_step: float, bound: int | None, left: int | None
) -> None:
    holder = Holder(kind=HolderKind.DEQUE, name="buffer", length=length, per_step=per_step, bound=bound)

    assert holder.steps_left == left


def test_a_holder_adds_bytes_by_its_elements() -> None:
    assert Holder(kind=HolderKind.LIST, name="history", per_step=0.5, bytes_per_element=4096).bytes_per_step == 2048


def test_the_share_of_a_site_is_of_the_steps_that_were_observed() -> None:
    assert Site(generations=3, steps=4).share == 0.75
    assert Site().share == 0.0
    assert Evidence(first_step=42, last_step=49).watched_steps == 7


def test_a_suspicion_counts_from_its_base() -> None:
    suspicion = make_suspicion(1, 9, 31.0, base=100, level=350)

    assert suspicion.growth == 250


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (CodeLine(file="src/train.py", line=7, text="kept.append(x)"), "train.py:7  kept.append(x)"),
        (CodeLine(file="C:\\work\\train.py", line=7, text="kept.append(x)"), "train.py:7  kept.append(x)"),
        (CodeLine(file="train.py", line=7), "train.py:7"),
    ],
)
def test_a_line_is_shown_with_its_files_name(line: CodeLine, text: str) -> None:
    assert str(line) == text


def test_a_share_is_of_the_growth_that_is_named() -> None:
    # given: at the look a holder explained 84 % of what grew by then
    found = Conclusion(outcome=Outcome.CONFIRMED, step=50, reason="", share=0.84, explained=120.0)
    # then: of the growth at the end of the run it explains less
    assert found.share_of(168.0) == pytest.approx(0.714, abs=0.001)
    assert found.share_of(100.0) == 1.0
    assert replace(found, explained=None).share_of(168.0) == 0.84
