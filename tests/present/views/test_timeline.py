"""Memory over time: layers, bands, steps and phases."""

from __future__ import annotations

import pytest

from tbmem.errors import UsageError
from tbmem.present.views.timeline import timeline_view
from tests.analysis.timelines import recording
from tests.present.views.recordings import two_steps, view_of


def test_the_stack_adds_up_to_the_curve() -> None:
    recorded = two_steps()
    truth = recorded.analysis.timeline

    timeline = timeline_view(recorded, axis="event")

    columns = zip(*timeline["bytes"], strict=True)
    assert [sum(column) for column in columns] == timeline["total"]
    assert max(timeline["total"]) == truth.peak(0).bytes == timeline["peak"]["bytes"]
    assert timeline["steps"]["label"] == ["step 0", "step 1"]
    assert {"FORWARD", "BACKWARD"} <= set(timeline["phases"]["label"])
    # and zoomed it begins with the level there
    part = timeline_view(recorded, axis="event", begin=10, end=15)
    assert part["axis"]["range"] == [10, 15]
    assert part["total"][0] == int(truth.curve(0).bytes[10])
    assert part["x"][0] == 10


@pytest.mark.parametrize("largest", [1, 3, 100])
def test_bands_and_the_rest_make_the_layers(largest: int) -> None:
    answer = timeline_view(two_steps(), axis="event", largest=largest)

    found = answer["allocations"]
    bands = found["bands"]
    rest = [list(layer) for layer in answer["bytes"]]
    for size, layer, first, last in zip(*(bands[key] for key in ("bytes", "layer", "first", "last")), strict=True):
        for moment in range(first, last):
            rest[layer][moment] -= size
    assert min(map(min, rest)) >= 0
    assert found["shown"] == len(bands["row"]) == min(largest, found["count"])
    # and with all of them nothing is left but what has no row
    if largest > found["count"]:
        assert max(map(max, rest)) == max(found["unlisted"])


def test_bands_last_as_long_as_their_allocations() -> None:
    # given a range in which nothing happens after event 14
    recorded = two_steps()
    answer = timeline_view(recorded, axis="event", begin=12, end=14.5)

    # then those that are alive reach its end, and those from before its beginning
    bands = answer["allocations"]["bands"]
    rows = recorded.analysis.timeline.rows
    for row, x0, x1, before in zip(*(bands[key] for key in ("row", "x0", "x1", "before")), strict=True):
        freed = 0 <= rows.free_event[row] <= 14
        assert x1 == (rows.free_event[row] if freed else 14.5)
        assert before == (rows.alloc_event[row] < 12)
        assert x0 == max(rows.alloc_event[row], 12)


def test_a_device_without_events_says_so() -> None:
    answer = timeline_view(view_of(recording({"bytes": 50}, device={"events": 0})))

    assert answer["empty"]["title"] == "No allocation of this device was recorded"
    assert max(answer["total"]) == 50


def test_an_unknown_axis_is_refused() -> None:
    with pytest.raises(UsageError, match="axis=miles: w.tbmem.npz has"):
        timeline_view(two_steps(), axis="miles")
