"""The first line of a program that reads a value which the device has not computed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from tbmem.model.rehearsal import ComputedRead
from tbmem.rehearsal import device_reads


def frames(*files: str) -> FrameType:
    """A stack of functions in these files, the last one innermost."""
    source = "def call(rest):\n    return rest[0](rest[1:])\n"
    functions = []
    for file in files:
        space: dict[str, object] = {}
        exec(compile(source, file, "exec"), space)
        functions.append(space["call"])
    functions.append(lambda _: sys._getframe(1))
    frame = functions[0](functions[1:])  # type: ignore[operator]
    assert isinstance(frame, FrameType)
    return frame


@pytest.fixture(autouse=True)
def _nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_reads, "_first", None)


def test_the_line_is_the_programs_own(tmp_path: Path) -> None:
    # given a line of the program that calls torch
    script = tmp_path / "train.py"
    script.write_text("def call(rest):\n    return rest[0](rest[1:])\n", encoding="utf-8")
    stack = frames("/lib/python3.11/runpy.py", str(script), "/x/site-packages/torch/_tensor.py")
    # when a value is read, then that line is named with its text
    expected = ComputedRead(file=str(script), line=2, code="return rest[0](rest[1:])")
    assert device_reads._line_of(stack) == expected


READERS = ["amp/grad_scaler.py", "distributed/fsdp/_fully_shard/_fsdp_param.py"]


@pytest.mark.parametrize("reader", [*[f"/x/site-packages/torch/{name}" for name in READERS], device_reads.__file__])
def test_reads_that_say_nothing_of_the_program(reader: str) -> None:
    # given the gradient scaler, parameters that FSDP keeps on the host, or tbmem, when they read, then no line is named
    assert device_reads._line_of(frames("/home/me/train.py", reader)) is None


def test_activations_that_are_kept_on_the_host_steer_nothing() -> None:
    assert device_reads._is_harmless("/x/site-packages/torch/autograd/graph.py", "pack_to_cpu")
    assert not device_reads._is_harmless("/x/site-packages/torch/autograd/graph.py", "backward")


def test_only_the_first_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # given two reads, when the first one has a line, then it is the one
    lines = iter([None, ComputedRead(file="a.py", line=1, code=""), ComputedRead(file="b.py", line=1, code="")])
    monkeypatch.setattr(device_reads, "_line_of", lambda frame: next(lines))
    for _ in range(3):
        device_reads._note_read(8)
    first = device_reads.first_read()
    assert first is not None
    assert first.file == "a.py"
