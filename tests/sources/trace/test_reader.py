"""Traces of torch.profiler as timelines: the corpus, torch itself, and bad files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.errors import FileFormatError, NoMemoryEventsError
from tbmem.model.category import Phase
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE
from tbmem.sources.trace.reader import read_trace
from tests.sources.trace.traces import (
    TRAINING,
    WRITERS,
    Event,
    as_one_line,
    as_torch_writes,
    as_viewers_write,
    read,
)


def test_a_packed_trace_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.pt.trace.json.gz").write_bytes(gzip.compress(as_torch_writes(TRAINING).encode()))

    assert read_trace(tmp_path / "t.pt.trace.json.gz").about["file"] == "t.pt.trace.json.gz"


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "without any event"),
        (TRAINING[:3], "3 events, none of them.*profile_memory=True.*profile_all_threads=True"),
    ],
)
@WRITERS
def test_without_memory_events_the_reason_and_the_remedy_are_said(
    tmp_path: Path, events: list[Event], message: str, write: Any
) -> None:
    with pytest.raises(NoMemoryEventsError, match=message):
        read(tmp_path, events, write)


def _damaged() -> list[tuple[bytes, str]]:
    whole = as_torch_writes(TRAINING).encode()
    return [
        (b"", "the file is empty"),
        (b"{}", 'no "traceEvents"'),
        (b"[1, 2]", 'no "traceEvents"'),
        (b"<html>", "not JSON"),
        (whole[:40], "cut off"),
        (whole[: len(whole) // 2], "cut off or damaged after"),
        (whole[: whole.rindex(b"]")], "cut off"),
        (whole[: whole.rindex(b"}")], "cut off"),
        (as_one_line(TRAINING).encode()[:-500], "cut off"),
        (as_viewers_write(TRAINING).encode()[:-500], "cut off"),
        (gzip.compress(whole)[:-30], "gzip data is damaged or cut off"),
        (gzip.compress(whole)[:60] + bytes(60), "gzip data is damaged or cut off"),
    ]


@pytest.mark.parametrize(("content", "message"), _damaged())
def test_bad_files_are_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)

    with pytest.raises(FileFormatError) as caught:
        read_trace(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_trace_of_the_corpus_agrees_with_the_oracle(corpus: Path) -> None:
    oracle = json.loads((corpus / "oracle.json").read_text())["traces"]

    for name, expected in oracle.items():
        if not expected["devices"]:
            with pytest.raises(NoMemoryEventsError):
                read_trace(corpus / "traces" / name)
            continue
        timeline = read_trace(corpus / "traces" / name)
        found = {f"{one.type}:{one.index}": figures(timeline, number) for number, one in enumerate(timeline.devices)}
        wanted = {key: {figure: values[figure] for figure in found[key]} for key, values in expected["devices"].items()}
        assert found == wanted, name


def figures(timeline: AllocationTimeline, number: int) -> dict[str, int | None]:
    """A device's figures under the oracle's names."""
    device, peak = timeline.devices[number], timeline.peak(number)
    rows, reserved = timeline.rows.take(timeline.rows.device == number), timeline.peak_reserved(number)
    found = {
        "n": device.events,
        "allocs": device.allocs,
        "frees": device.frees,
        "net": int(timeline.curve(number).bytes[-1]) - device.base_bytes,
        "peak_delta": peak.bytes - device.base_bytes,
        "last_total": device.allocated_bytes,
        "peak_total": peak.bytes if device.base_is_known else None,
        "out_of_order": device.out_of_order,
    }
    if reserved is not None:
        found["max_reserved"] = reserved.bytes
    if rows.address.any():
        # without addresses the oracle's replay matches any free with the last allocation, whatever its size
        found["unmatched_free"] = device.unmatched_frees
        found["live_end"] = int(((rows.alloc_event >= 0) & (rows.free_event == ALIVE)).sum())
    return found


def test_torch_itself_agrees(tmp_path: Path) -> None:
    # given a training that torch's profiler watches
    import torch
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as recorded:
        for _ in range(2):
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    path = tmp_path / "t.json"
    recorded.export_chrome_trace(str(path))

    # when the trace is read
    timeline = read_trace(path)

    # then its curve is torch's own counter, event by event
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["name"] == "[memory]"]
    events.sort(key=lambda event: event["ts"])
    assert timeline.curve(0).bytes[1:].tolist() == [event["args"]["Total Allocated"] for event in events]
    # and the optimizer's state is what two moments per parameter take
    rows = timeline.rows
    kept = rows.take((rows.phase == Phase.OPTIMIZER) & (rows.free_event == ALIVE) & (rows.bytes > 4))
    assert kept.bytes.sum() == 2 * 4 * sum(parameter.numel() for parameter in model.parameters())
    forward = rows.take((rows.phase == Phase.FORWARD) & (rows.bytes == 32 * 128 * 4))
    assert {timeline.modules[number].rpartition(".")[2] for number in np.unique(forward.module).tolist()} == {
        "Linear_0",
        "ReLU_0",
    }
