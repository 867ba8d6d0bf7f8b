"""Events of a trace: streamed in batches, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.category import Phase
from tbmem.model.stacks import Frame
from tbmem.model.timeline_tables import ALIVE, BEFORE
from tbmem.sources.trace import json_stream as json_events
from tbmem.sources.trace.reader import read_trace
from tests.sources.trace.traces import (
    TRAINING,
    WRITERS,
    as_one_line,
    as_torch_writes,
    call,
    memory,
    read,
)

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
