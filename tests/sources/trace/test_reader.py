"""Traces of torch.profiler become timelines: streamed, without torch, whoever wrote them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.analysis.source_lines import SourceLines
from tbmem.errors import FileFormatError, NoMemoryEventsError
from tbmem.model.category import Phase
from tbmem.model.stacks import Frame
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST, RangeKind
from tbmem.model.trace_additions import OlderStorages, TimedLines, TraceAdditions
from tbmem.sources.trace import json_stream as json_events
from tbmem.sources.trace.reader import read_trace

Event = dict[str, Any]


def memory(ts: float, size: int, addr: int = 0, total: int | None = None, **others: Any) -> Event:
    args: Event = {"Bytes": size, "Device Type": 1, "Device Id": 0}
    if addr:
        args["Addr"] = addr
    if total is not None:
        args |= {"Total Allocated": total, "Total Reserved": 4096}
    args |= others.pop("args", {})
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": args,
        **others,
    }


def span(category: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(number: int, parent: int | None, name: str, ts: float, dur: float) -> Event:
    return span("python_function", name, ts, dur, **{"Python parent id": parent, "Python id": number, "Ev Idx": number})


TRAINING = [
    span("kernel", "sgemm", 0, 99, stream=7),
    span("user_annotation", "ProfilerStep#3", 0, 50),
    span("user_annotation", "ProfilerStep#4", 50, 50),
    call(1, None, "train.py(9): loop", 0, 100),
    call(2, 1, "nn.Module: GPT_0", 5, 10),
    call(3, 2, "torch/nn/modules/module.py(1): _call_impl", 5, 10),
    call(4, 3, "nn.Module: Linear_0", 6, 5),
    call(5, 4, "<built-in method linear of type object at 0x7f12ab>", 7, 3),
    call(6, 1, "torch/autograd/graph.py(2): _engine_run_backward", 20, 10),
    span("cpu_op", "aten::linear", 7, 3),
    span("cpu_op", "aten::empty", 8, 1),
    span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 21, 5, tid=2),
    span("cpu_op", "aten::mm", 22, 2, tid=2),
    span("user_annotation", "Optimizer.step#SGD.step", 60, 10),
    memory(8.5, 512, 100, 1512),
    memory(22.5, 256, 200, 1768, tid=2),
    memory(65, 128, 300, 1896),
    memory(70, -512, 100, 1384),
    memory(80, -64, 900, 1320),
    memory(90, 8, 50, args={"Device Type": 0, "Device Id": -1, "Total Allocated": 8, "Total Reserved": 0}),
]
ABOUT = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "A100", "totalGlobalMem": 80}],
    "baseTimeNanoseconds": 1_000_000,
}


def as_torch_writes(events: list[Event], about: Event = ABOUT) -> str:
    """Each event on lines of its own, the clock's zero behind them."""
    head = {key: value for key, value in about.items() if key != "baseTimeNanoseconds"}
    bodies = []
    for event in events:
        fields = [f'"{key}": {json.dumps(value)}' for key, value in event.items() if key != "args"]
        bodies.append(
            "  {\n    "
            + ", ".join(fields)
            + ',\n    "args": {\n      '
            + json.dumps(event.get("args", {}))[1:-1]
            + "\n    }\n  }"
        )
    tail = {key: value for key, value in about.items() if key == "baseTimeNanoseconds"}
    return (
        f'\n{json.dumps(head)[:-1]},\n  "traceEvents": [\n'
        + ",\n".join(bodies)
        + f"\n  ], {json.dumps(tail)[1:-1]}\n}}\n"
    )


def as_viewers_write(events: list[Event], about: Event = ABOUT) -> str:
    return json.dumps({**about, "traceEvents": events}, indent=2, sort_keys=True)


def as_one_line(events: list[Event], about: Event = ABOUT) -> str:
    return json.dumps({**about, "traceEvents": events}, separators=(",", ":"))


def read(
    tmp_path: Path, events: list[Event], write: Any = as_torch_writes, additions: TraceAdditions | None = None
) -> AllocationTimeline:
    path = tmp_path / "t.json"
    path.write_text(write(events))
    if additions is not None:
        additions.append_to(path)
    return read_trace(path)


WRITERS = pytest.mark.parametrize("write", [as_torch_writes, as_viewers_write, as_one_line])
CHUNKS = pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])


@WRITERS
@CHUNKS
def test_whoever_wrote_it_and_however_it_is_cut(tmp_path: Path, monkeypatch: Any, write: Any, chunk: int) -> None:
    monkeypatch.setattr(json_events, "_CHUNK", chunk)

    timeline = read(tmp_path, TRAINING, write)

    device, rows = timeline.devices[0], timeline.rows
    assert (device.name, device.model, device.total_bytes) == ("cuda:0", "A100", 80)
    assert (device.events, device.allocs, device.frees, device.unmatched_frees) == (5, 3, 2, 1)
    assert timeline.peak(0) == (1896, 2, 1_065_000)
    assert timeline.peak(1) == (8, 0, 1_090_000)
    assert rows.bytes.tolist() == [512, 256, 128, 64, 8]
    assert rows.alloc_event.tolist() == [0, 1, 2, BEFORE, 0]
    assert rows.free_event.tolist() == [3, ALIVE, ALIVE, 4, ALIVE]
    assert rows.step.tolist() == [3, 3, 4, -1, 4]
    assert rows.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER, Phase.OTHER]
    assert [timeline.operators[number] for number in rows.operator.tolist()[:2]] == ["aten::linear", "aten::mm"]
    assert timeline.modules[rows.module[0]] == "GPT_0.Linear_0"


def test_stacks_are_the_python_calls_without_a_line_that_nobody_told(tmp_path: Path) -> None:
    # given a trace of torch 2.13 or earlier: train.py(9) is where the function begins
    timeline = read(tmp_path, TRAINING)

    assert timeline.frames(0) == (
        Frame("", 0, "<built-in method linear of type object>"),
        Frame("", 0, "nn.Module: Linear_0"),
        Frame("torch/nn/modules/module.py", 0, "_call_impl"),
        Frame("", 0, "nn.Module: GPT_0"),
        Frame("train.py", 0, "loop (from line 9)"),
    )
    assert timeline.frames(1) == ()
    assert timeline.frames(2) == (Frame("train.py", 0, "loop (from line 9)"),)
    assert any("not the lines" in note for note in timeline.notes)


@WRITERS
def test_a_call_tells_the_line_that_its_caller_had_come_to(tmp_path: Path, write: Any) -> None:
    # given a trace of torch 2.14, which tells of each call where it comes from, before everything else
    def called(number: int, parent: int | None, name: str, ts: float, dur: float, called_from: str) -> Event:
        one = call(number, parent, name, ts, dur)
        one["args"] = {"CallFrom": called_from, **one["args"]}
        return one

    events = [
        called(1, None, "train.py(9): <module>", 0, 100, "train.py:9"),
        called(2, 1, "model.py(3): forward", 5, 10, "train.py:12"),
        called(3, 2, "<built-in method relu of type object at 0x1>", 7, 3, "model.py:5"),
        memory(8, 512, 100, 512),
        memory(14, 512, 200, 1024),
        memory(50, 512, 300, 1536),
    ]

    timeline = read(tmp_path, events, write)

    assert timeline.frames(0) == (
        Frame("", 0, "<built-in method relu of type object>"),
        Frame("model.py", 5, "forward"),
        Frame("train.py", 12, "<module>"),
    )
    assert timeline.frames(1) == (Frame("model.py", 0, "forward (from line 3)"), Frame("train.py", 12, "<module>"))
    assert timeline.frames(2) == (Frame("train.py", 0, "<module>"),)


def test_what_tbmem_noted_says_lines_and_whose_a_file_is(tmp_path: Path) -> None:
    # given that the process noted at 5, 6 and 7 us where calls came from, and at 14 us the line of an operator
    events = [
        call(1, None, "train.py(9): <module>", 0, 100),
        call(2, 1, "hub/trainer.py(3): train", 5, 10),
        call(3, 2, "train.py(30): loss", 7, 3),
        memory(8, 512, 100, 512),
        memory(14, 512, 200, 1024),
    ]
    additions = TraceAdditions(
        calls=TimedLines.of({1_007_000: 5, 1_005_000: 12}),
        operators=TimedLines.of({1_008_001: 31}),
        files={"hub/trainer.py": "/venv/lib/python3.11/site-packages/hub/trainer.py"},
    )

    timeline = read(tmp_path, events, additions=additions)

    assert timeline.frames(0) == (
        Frame("train.py", 31, "loss"),
        Frame("/venv/lib/python3.11/site-packages/hub/trainer.py", 5, "train"),
        Frame("train.py", 12, "<module>"),
    )
    assert SourceLines(timeline.stacks).line(int(timeline.rows.stack[1])) == "train.py:12 <module>"


def test_ranges_are_kept(tmp_path: Path) -> None:
    timeline = read(tmp_path, TRAINING)

    assert [timeline.range_names[number] for number in timeline.ranges.name.tolist()] == [
        "ProfilerStep#3",
        "ProfilerStep#4",
        "Optimizer.step#SGD.step",
    ]
    assert timeline.ranges.kind.tolist() == [RangeKind.STEP, RangeKind.STEP, RangeKind.OPTIMIZER]
    assert timeline.ranges.begin_ns.tolist() == [1_000_000, 1_050_000, 1_060_000]


def test_what_was_there_before_is_known_by_the_totals(tmp_path: Path) -> None:
    device = read(tmp_path, TRAINING).devices[0]

    assert (device.base_bytes, device.unlisted_bytes, device.allocated_bytes) == (1000, 936, 1320)
    assert (device.reported_peak_bytes, device.reserved_bytes) == (1896, 4096)


def host(ts: float, size: int, addr: int, total: int) -> Event:
    return memory(ts, size, addr, args={"Device Type": 0, "Device Id": -1, "Total Allocated": total})


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


def test_a_time_that_no_clock_shows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"near number 1 .*beyond the year 2255"):
        read(tmp_path, [memory(1e17, 8, 1)])


@WRITERS
def test_times_of_any_manner(tmp_path: Path, write: Any) -> None:
    # given times before the clock's zero, with an exponent, with a fraction, whole, and as text
    times = (-3.5, 1e-5, 2.25, 4, "6.5", 1.5e15)
    events = [memory(time, 8, address, 8 * address) for address, time in enumerate(times, 1)]  # type: ignore[arg-type]
    events[0]["args"]["Bytes"] = "8"

    timeline = read(tmp_path, events, write)

    assert (timeline.rows.alloc_ns - 1_000_000).tolist() == [-3500, 0, 2250, 4000, 6500, 15 * 10**17]
    assert timeline.peak(0).bytes == 48


def test_words_with_escapes_and_letters_beyond_ascii(tmp_path: Path) -> None:
    events = [call(1, None, 'größe.py(1): "f" \\ g', 0, 9), memory(1, 8, 1, 8)]

    for write in (as_torch_writes, as_one_line, lambda events: json.dumps({"traceEvents": events}, ensure_ascii=False)):
        assert read(tmp_path, events, write).frames(0) == (Frame("größe.py", 0, '"f" \\ g (from line 1)'),)


def test_lone_backslashes_of_windows_are_survived(tmp_path: Path) -> None:
    text = as_torch_writes([call(1, None, "C:/users/x.py(1): f", 0, 9), memory(1, 8, 1, 8)]).replace(
        "C:/users/", r"C:\users\q"
    )

    (tmp_path / "t.json").write_text(text)

    assert read_trace(tmp_path / "t.json").frames(0)[0].file == r"C:\users\qx.py"


@pytest.mark.parametrize(
    ("was", "damaged"),
    [
        ('"Bytes": 512', '"Input": "a"b", "Bytes": 512'),
        ('"Bytes": 512', '"Scale": NaN, "Other": null, "Bytes": "512"'),
        ('"stream": 7', '"Addr": [7], "Python id": "none"'),
        ('"cat": "kernel"', '"cat": {"kernel": 3}'),
        ('"name": "sgemm"', '"name": "sg\t\x00emm"'),
    ],
)
@WRITERS
def test_a_damaged_event_costs_no_other(tmp_path: Path, was: str, damaged: str, write: Any) -> None:
    if '"b"' in damaged:
        write = as_torch_writes  # only there does the end of a damaged event show
    if write is as_one_line:
        was, damaged = was.replace(": ", ":"), damaged.replace(": ", ":")
    text = write(TRAINING)
    assert was in text

    (tmp_path / "t.json").write_text(text.replace(was, damaged, 1))

    assert read_trace(tmp_path / "t.json").rows.bytes.tolist() == [512, 256, 128, 64, 8]


@WRITERS
def test_endless_nesting_is_one_clear_line(tmp_path: Path, write: Any) -> None:
    (tmp_path / "t.json").write_text(write(TRAINING).replace("512", "[" * 100_000 + "]" * 100_000, 1))

    with pytest.raises(FileFormatError, match="none of torch.profiler"):
        read_trace(tmp_path / "t.json")


def test_events_that_are_not_apart_by_the_usual_line_are_found(tmp_path: Path) -> None:
    text = as_torch_writes(TRAINING).replace('  },\n  {\n    "ph": "i"', '  } ,\n\n {\n    "ph": "i"')
    (tmp_path / "t.json").write_text(text)

    assert read_trace(tmp_path / "t.json").peak(0).bytes == 1896


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
