"""A trace leaves torch through memory, whatever the disk does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from tbmem.runtime.profiling import exported_trace
from tbmem.runtime.profiling.exported_trace import export_to_memory


def _left() -> set[str]:
    return (
        {name for name in os.listdir("/dev/shm") if name.startswith("tbmem-")} if Path("/dev/shm").is_dir() else set()
    )


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_torchs_trace_is_whole_and_nothing_is_left(has_memory_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    before = _left()
    if not has_memory_files:
        monkeypatch.setattr(exported_trace, "_memory_file", lambda: None)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(10).sum()
    # when
    with export_to_memory(profiler.export_chrome_trace) as file:
        file.seek(0)
        content = json.load(file)
    # then
    assert any(event["name"] == "aten::sum" for event in content["traceEvents"])
    assert _left() == before


def test_an_older_torch_that_does_not_rename_serves_as_well() -> None:
    with export_to_memory(lambda path: Path(path).write_text("{}")) as file:
        file.seek(0)
        assert file.read() == b"{}"


def test_an_empty_trace_is_an_error() -> None:
    with pytest.raises(OSError, match="no trace"):
        export_to_memory(lambda path: Path(path).write_text(""))
