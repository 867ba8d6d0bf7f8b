"""`tbmem export`: a file for each format."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.offline.snapshots import write_snapshot


@pytest.mark.parametrize("wanted", ["perfetto", "speedscope", "csv", "json", "memory_viz"])
def test_export(run: Run, tmp_path: Path, wanted: str) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[3 << 20])

    done = run("export", "rank0.pickle", "--to", wanted)

    assert done.code == 0
    written = tmp_path / done.out.strip()
    assert written.stat().st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["rank0.pickle", written.name])


def _sizes(path: Path, wanted: str) -> list[int]:
    """Bytes of the allocations in an exported file."""
    if wanted == "csv":
        return [int(row["bytes"]) for row in csv.DictReader(path.read_text().splitlines())]
    data: dict[str, Any] = pickle.loads(path.read_bytes()) if wanted == "memory_viz" else json.loads(path.read_text())
    if wanted == "json":
        return [one["bytes"] for one in data["devices"]["0"]["top"]]
    return [event["size"] for event in data["device_traces"][0]]


@pytest.mark.parametrize("wanted", ["csv", "json", "memory_viz"])
def test_each_format_has_the_allocations(wanted: str, run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[3 << 20, 1000])

    done = run("export", "rank0.pickle", "--to", wanted, "--out", "here")

    assert done.out == "here\n"
    assert sorted(_sizes(tmp_path / "here", wanted)) == [1000, 3 << 20]


def test_a_missing_folder_is_one_line_and_exit_2(run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "good.pickle", sizes=[1000])

    done = run("export", "good.pickle", "--to", "csv", "--out", "nowhere/x.csv")

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "nowhere: no such folder" in done.err
