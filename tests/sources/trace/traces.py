"""Small traces of torch.profiler, written as torch and others write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tbmem.model.timeline import AllocationTimeline
from tbmem.model.trace_additions import TraceAdditions
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
        with open(path, "r+b") as trace:
            additions.append_to(trace)
    return read_trace(path)


WRITERS = pytest.mark.parametrize("write", [as_torch_writes, as_viewers_write, as_one_line])


def host(ts: float, size: int, addr: int, total: int) -> Event:
    return memory(ts, size, addr, args={"Device Type": 0, "Device Id": -1, "Total Allocated": total})
