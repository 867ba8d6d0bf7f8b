"""Allocations and totals of a device in a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tbmem.model.category import Phase
from tbmem.model.stacks import Frame
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST
from tbmem.model.trace_additions import OlderStorages, TraceAdditions
from tests.sources.trace.traces import (
    TRAINING,
    as_torch_writes,
    host,
    memory,
    read,
    span,
)


def test_what_was_there_before_is_known_by_the_totals(tmp_path: Path) -> None:
    device = read(tmp_path, TRAINING).devices[0]

    assert (device.base_bytes, device.unlisted_bytes, device.allocated_bytes) == (1000, 936, 1320)
    assert (device.reported_peak_bytes, device.reserved_bytes) == (1896, 4096)


def test_a_total_of_the_cpu_may_have_what_was_freed_unseen(tmp_path: Path) -> None:
    # given a trace of which nobody knows what was alive when it began
    timeline = read(tmp_path, [host(1, 100, 1, 1100), host(2, -100, 1, 1000)])

    # then the total is all there is, and that is said
    assert timeline.peak(0).bytes == 1100
    assert any("freed while no profiler was on" in note for note in timeline.notes)


def test_of_the_cpu_the_level_is_what_was_found_alive(tmp_path: Path) -> None:
    # given a total of 1000 bytes at the beginning, of which nothing is alive
    older = OlderStorages(
        address=np.array([10, 20, 30, 40]),
        bytes=np.array([64, 32, 16, 8]),
        freed_ns=np.array([-1, 1_001_500, 1_009_000, -1]),
    )
    events = [
        host(1, 100, 1, 1100),  # 10, 20, 30 and 40 are alive
        host(2, -500, 40, 600),  # torch tells the size of what once lay there
        host(3, 50, 30, 650),  # so 30 was freed sooner than was seen
        host(4, 10, 2, 660),
        host(5, 10, 2, 670),  # freed in between by a thread without a profiler
    ]

    timeline = read(tmp_path, events, additions=TraceAdditions(older=older))

    device = timeline.devices[0]
    assert timeline.curve(0).bytes.tolist() == [120, 220, 180, 214, 224, 224]
    assert (device.base_bytes, device.unlisted_bytes, device.allocated_bytes) == (120, 0, 224)
    assert not any("freed while no profiler was on" in note for note in timeline.notes)


def test_old_traces_have_no_addresses_and_no_totals(tmp_path: Path) -> None:
    # given a trace of 2021: threads as words, steps among the operators, stacks as text, whole microseconds
    stack = "torch/nn/modules/module.py(5): _call_impl;train.py(3): main"
    events = [
        {**span("Operator", "ProfilerStep#5", 1623143089000000, 100), "tid": "1"},
        {
            **span("Operator", "aten::conv2d", 1623143089000010, 5, **{"Call stack": stack, "Input Dims": [[1, 2]]}),
            "tid": "1",
        },
        {**memory(1623143089000012, 64), "cat": None},
        {**memory(1623143089000013, 32), "cat": None},
        {**memory(1623143089000014, -64), "cat": None},
    ]
    events = [{key: value for key, value in event.items() if value is not None} for event in events]

    timeline = read(tmp_path, events, lambda events: as_torch_writes(events, {"schemaVersion": 1, "x": 2}))

    assert timeline.rows.free_event.tolist() == [2, ALIVE]
    assert timeline.rows.alloc_ns.tolist() == [1623143089000012000, 1623143089000013000]
    assert timeline.rows.step.tolist() == [5, 5]
    assert timeline.rows.phase.tolist() == [Phase.FORWARD] * 2
    assert timeline.frames(0)[1] == Frame("train.py", 3, "main")
    assert timeline.peak(0).bytes == 96
    assert timeline.devices[0].unmatched_frees == 0
    assert not timeline.devices[0].base_is_known
    assert any("no addresses" in note for note in timeline.notes)


def test_without_addresses_a_free_after_a_free_is_unmatched_as_a_replay_finds(tmp_path: Path) -> None:
    timeline = read(tmp_path, [memory(1, 8), memory(2, 4), memory(3, -8), memory(4, -4)])

    assert timeline.rows.free_event.tolist() == [2, 3]
    assert timeline.devices[0].unmatched_frees == 1
    assert any("matched by size" in note for note in timeline.notes)


def test_the_files_own_total_counts_where_events_are_missing(tmp_path: Path) -> None:
    # given totals that jump by 400 more than the event says, and later by 300 less
    events = [memory(1, 100, 1, 1100), memory(2, 50, 2, 1550), memory(3, 10, 3, 1560), memory(4, 5, 4, 1265)]

    timeline = read(tmp_path, events)

    # then the curve is the file's, and what no event explains has rows of its own
    assert timeline.curve(0).bytes.tolist() == [1000, 1100, 1550, 1560, 1265]
    assert timeline.peak(0)[:2] == (1560, 2)
    assert timeline.devices[0].unexplained_changes == 2
    assert timeline.rows.bytes.tolist() == [100, 50, 10, 5, 400, 300]
    assert timeline.rows.alloc_event.tolist()[4:] == [1, BEFORE]
    assert timeline.rows.free_event.tolist()[4:] == [LOST, 3]
    assert any("2 times the total changed by more or less" in note for note in timeline.notes)


def test_a_total_that_stays_zero_is_none(tmp_path: Path) -> None:
    timeline = read(tmp_path, [memory(1, 100, 1, 0), memory(2, 50, 2, 0), memory(3, -100, 1, 0)])

    assert timeline.curve(0).bytes.tolist() == [0, 100, 150, 50]
    assert not timeline.devices[0].base_is_known


def test_rocm_is_called_cuda_as_torch_does(tmp_path: Path) -> None:
    timeline = read(tmp_path, [memory(1, 8, 1, args={"Device Type": 6, "Device Id": 3})])

    assert (timeline.devices[0].name, timeline.devices[0].type, timeline.devices[0].index) == ("cuda:3", 6, 3)


def test_events_out_of_order_are_sorted_and_counted(tmp_path: Path) -> None:
    timeline = read(tmp_path, [memory(5, -8, 1, 0), memory(2, 8, 1, 8), memory(9.25, 4, 1, 4)])

    assert timeline.devices[0].out_of_order == 1
    assert timeline.rows.free_event.tolist() == [1, ALIVE]
    assert timeline.curve(0).bytes.tolist() == [0, 8, 0, 4]
    assert timeline.rows.alloc_ns.tolist() == [1_002_000, 1_009_250]
