"""The lines and operators that made one step of a hand-built recording need more than the others."""

from __future__ import annotations

from typing import Any

from tbmem.analysis.diagnosis.spike_source import SpikeSource, SpikeSources, spike_sources, step_levels
from tbmem.units import KIB
from tests.analysis.timelines import recording

MODEL = (("/home/me/model.py", 41, "forward"), ("/home/me/train.py", 9, "main"))
LOG = (("/home/me/train.py", 12, "main"),)


def _steps(extra: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Four steps of 1,000 bytes in ``forward``, and what else they allocate; all of a step is freed at its end."""
    rows: list[dict[str, Any]] = []
    event = 0
    for step in range(4):
        added = [{"bytes": 1000, "stack": MODEL, "operator": "aten::mm"}, *extra.get(step, [])]
        end = event + len(added)
        rows += [{**row, "step": step, "begin": event + at, "end": end + at} for at, row in enumerate(added)]
        event = end + len(added)
    return rows


def test_the_line_that_held_more_is_named_with_the_difference() -> None:
    # given 5,000 bytes more in step 2, in two allocations, beside one of the line that other steps have, too
    more = [{"bytes": size, "stack": LOG, "operator": "aten::cat"} for size in (2000, 3000)]
    timeline = recording(*_steps({2: more}))
    # when
    found = spike_sources(timeline, 0, 2)
    # then
    assert found.largest == (SpikeSource("me/train.py:12 main", "aten::cat", 5000, 2),)


def test_of_a_line_that_is_in_all_steps_only_what_is_more_counts() -> None:
    # given 7,000 bytes more by the model's own line in step 3, and 500 by another operator of that line
    more = [{"bytes": 7000, "stack": MODEL, "operator": "aten::mm"}]
    small = [{"bytes": 500, "stack": MODEL, "operator": "aten::add"}]
    timeline = recording(*_steps({3: more + small}))
    # when
    found = spike_sources(timeline, 0, 3)
    # then the second is less than a tenth of the difference
    assert found.largest == (SpikeSource("me/model.py:41 forward", "aten::mm", 7000, 2),)


def test_at_most_three_are_named_the_largest_first() -> None:
    more = [{"bytes": size, "operator": f"op{size}"} for size in (300, 500, 200, 400)]

    found = spike_sources(recording(*_steps({1: more})), 0, 1)

    assert [(source.line, source.operator) for source in found.largest] == [("", "op500"), ("", "op400"), ("", "op300")]
    assert found.others == 200


def test_without_the_step_or_without_others_there_is_nothing_to_compare() -> None:
    assert spike_sources(recording(*_steps({})), 0, 7) == SpikeSources()
    assert spike_sources(recording({"bytes": 8, "begin": 0, "end": 1, "step": 5}), 0, 5) == SpikeSources()
    # and a step like the others has no source
    assert spike_sources(recording(*_steps({})), 0, 1) == SpikeSources()


def test_a_source_is_its_line_else_its_operator() -> None:
    assert str(SpikeSource("a.py:3 f", "aten::mm", 2 * KIB, 1)) == "2.00 KiB by a.py:3 f (aten::mm)"
    assert str(SpikeSource("", "aten::mm", 2 * KIB, 1)) == "2.00 KiB by aten::mm"
    assert str(SpikeSource("", "", 2 * KIB, 1)) == "2.00 KiB by a place without a stack"


def test_of_two_other_steps_the_lower_tells_what_is_usual() -> None:
    # given: two of three steps are high
    more = [{"bytes": 5000, "stack": LOG, "operator": "aten::cat"}]
    rows = [row for row in _steps({2: more, 3: more}) if row["step"] > 0]
    # when
    found = spike_sources(recording(*rows), 0, 2)
    # then
    assert [source.bytes for source in found.largest] == [5000]


def test_the_peak_of_each_step() -> None:
    timeline = recording(*_steps({2: [{"bytes": 5000}], 3: [{"bytes": 9000}]}))
    assert step_levels(timeline, 0) == {0: 1000, 1: 1000, 2: 6000, 3: 10_000}


def test_what_is_not_named_is_summed_up() -> None:
    sources = SpikeSources((SpikeSource("a.py:3 f", "aten::mm", 2 * KIB, 1),), others=KIB)
    assert str(sources).endswith("held: 2.00 KiB by a.py:3 f (aten::mm), 1.00 KiB by others")
    assert str(sources._replace(others=0)).endswith("(aten::mm)")
    assert sources.to_evidence("w.json") == {
        "allocated_by": [{"line": "a.py:3 f", "operator": "aten::mm", "bytes": 2 * KIB, "allocations": 1}],
        "files": ["w.json"],
    }
