"""Traces are JSON whatever the path, and a disk without room leaves no file."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.sources.torch_state import trace_export
from tbmem.sources.torch_state.trace_export import export_trace

pytestmark = pytest.mark.torch_versions


@pytest.mark.parametrize("name", ["plain", 'a"quote', "back\\slash", "line\nbreak", "tab\t", "é 中 'x", "\udcff"])
def test_a_trace_is_json_whatever_its_path(name: str, tmp_path: Path) -> None:
    # given a recording, and a folder
    folder = tmp_path / name
    folder.mkdir()
    with torch.profiler.profile() as recorded:
        torch.ones(3).sum()
    # when
    export_trace(recorded, folder / "trace.json")
    # then
    events = json.loads((folder / "trace.json").read_bytes())["traceEvents"]
    assert any(event.get("name") == "aten::sum" for event in events)
    assert [path.name for path in folder.iterdir()] == ["trace.json"]


class _Torch:
    """A profile whose file torch could not complete: it says so on stderr only."""

    def export_chrome_trace(self, path: str) -> None:
        Path(f"{path}.tmp").write_text("{")


@pytest.mark.parametrize(("has_room", "number"), [(False, errno.ENOSPC), (True, errno.EIO)])
def test_what_torch_could_not_write_is_an_error_of_the_system(
    has_room: bool, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a disk
    def fsync(file: Any) -> None:
        if not has_room:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trace_export.os, "fsync", fsync)
    # when
    with pytest.raises(OSError, match=str(tmp_path)) as caught:
        export_trace(_Torch(), tmp_path / "trace.json")
    # then it is named, and nothing is left
    assert caught.value.errno == number
    assert list(tmp_path.iterdir()) == []
