"""The result of a rehearsal as text and as plain values."""

from __future__ import annotations

import json
from dataclasses import replace

from tbmem.model.rehearsal import Largest, Trial
from tbmem.present.text.rehearsal import largest_lines, largest_view, rehearsal_lines, rehearsal_view, trial_line
from tests.rehearsal.records import GIB, process, rehearsal


def test_a_program_that_fits() -> None:
    result = rehearsal(
        process(folder="runs/one"),
        phase="backward",
        by_category={"PARAMETER": 3 * GIB},
        by_module={},
        notes=("a note",),
    )

    text = "\n".join(rehearsal_lines(result))

    assert "It fits, with 29.00 GiB left." in text
    assert "9.00 GiB   in step 2, in the backward pass" in text
    assert "Parameter" in text
    assert "by module" not in text
    assert "Note: a note." in text
    assert "Recorded in runs/one" in text


def test_a_program_that_does_not_fit_says_how_much_is_missing() -> None:
    result = rehearsal(process(out_of_memory=True), needed=52 * GIB, out_of_memory_report="step 4 ran out of memory")

    text = "\n".join(rehearsal_lines(result))

    assert "runs out of memory in step 4; 52.00 GiB are needed, 12.00 GiB more than it has." in text
    assert "step 4 ran out of memory" in text
    assert "enough for it: h100-80gb and a100-80gb (--gpu); --largest" in text


def test_more_than_any_gpu_has() -> None:
    text = "\n".join(rehearsal_lines(rehearsal(process(out_of_memory=True), needed=500 * GIB)))

    assert "no GPU that tbmem knows has that much; --largest" in text


def test_the_lines_of_the_peak() -> None:
    # given a peak that seven lines have made, before the first optimizer step
    lines = {f"train.py:{number}": GIB for number in range(7)}
    device = replace(process().devices[0], step=1)
    result = rehearsal(process(devices=(device,)), phase="OTHER", by_line=lines)

    # when it is shown, then the largest have a row
    text = "\n".join(rehearsal_lines(result))
    assert "before the end of step 1" in text
    assert "train.py:5" in text
    assert "train.py:6" not in text
    assert "1 more" in text


def test_without_a_second_run_nothing_is_said_about_what_is_missing() -> None:
    before_a_step = process(out_of_memory=True, steps=0)

    lines = list(rehearsal_lines(rehearsal(before_a_step)))

    assert "It does not fit: cuda:0 runs out of memory in the first step or before it." in lines


def test_several_ranks_have_a_line_each() -> None:
    ranks = [process(rank, world_size=2, out_of_memory=rank == 1) for rank in range(2)]

    lines = list(rehearsal_lines(rehearsal(*ranks)))

    assert lines[0] == "train.py: on a100-40gb, rank 1 of 2"
    rows = [line.split() for line in lines]
    assert ["0", "cuda:0", "9.00", "GiB", "10.00", "GiB", "29.00", "GiB"] in rows
    assert ["1", "cuda:1", "9.00", "GiB", "10.00", "GiB", "out", "of", "memory"] in rows


def test_a_long_table_is_cut() -> None:
    text = "\n".join(rehearsal_lines(rehearsal(by_module={f"layer{number}": GIB for number in range(20)})))

    assert "layer11" in text
    assert "layer12" not in text
    assert "8 more" in text


def test_json() -> None:
    view = json.loads(json.dumps(rehearsal_view(rehearsal())))

    assert view["fits"] is True
    assert view["headroom"] == 29 * GIB
    assert view["peak_reserved"] == view["processes"][0]["devices"][0]["reserved"] == 10 * GIB


def test_the_largest_value() -> None:
    trials = (
        Trial(value=4, fits=True, reserved=GIB, room=39 * GIB),
        Trial(value=5, fits=False, reserved=GIB, room=39 * GIB),
    )
    answer = Largest(name="batch_size", value=4, is_bounded=True, trials=trials, result=rehearsal())

    assert trial_line("batch_size", trials[0]) == "  batch_size 4: reserves 1.00 GiB of 39.00 GiB"
    assert trial_line("batch_size", trials[1]) == "  batch_size 5: out of memory"
    assert next(largest_lines(answer)) == "The largest batch_size that fits is 4."
    unbounded = replace(answer, is_bounded=False)
    assert next(largest_lines(unbounded)) == "The largest batch_size that fits is 4, the end of the range."
    assert list(largest_lines(replace(answer, value=None))) == [
        "No batch_size of the range fits, the smallest neither."
    ]
    assert largest_view(answer)["result"]["fits"] is True
