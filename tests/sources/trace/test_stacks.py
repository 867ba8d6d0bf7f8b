"""Stacks of a trace, with and without lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tbmem.analysis.source_lines import SourceLines
from tbmem.model.stacks import Frame
from tbmem.model.trace_additions import TimedLines, TraceAdditions
from tests.sources.trace.traces import (
    TRAINING,
    WRITERS,
    Event,
    call,
    memory,
    read,
)


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
