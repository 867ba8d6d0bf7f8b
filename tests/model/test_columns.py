"""What is wrong with an archive is said in one line that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.errors import FileFormatError
from tbmem.model.columns import check_header, read_archive
from tbmem.model.timeline_tables import AllocationRows


def _parse(stored: Any) -> list[int]:
    check_header(json.loads(str(stored["header"])), "shelf", 2)
    return [int(value) for value in stored["values"]]


def _write(path: Path, **header: object) -> Path:
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), values=np.arange(3))
    return path


def test_the_record_comes_back(tmp_path: Path) -> None:
    assert read_archive(_write(tmp_path / "a.npz", kind="shelf", schema=1), _parse, "a shelf") == [0, 1, 2]


@pytest.mark.parametrize(("kind", "schema"), [("shelf", 3), ("drawer", 1)])
def test_another_kind_and_a_later_schema_are_refused(kind: str, schema: int, tmp_path: Path) -> None:
    path = _write(tmp_path / "a.npz", kind=kind, schema=schema)

    with pytest.raises(FileFormatError, match=f"a.npz: holds {kind} of schema {schema}, .* shelf up to 2"):
        read_archive(path, _parse, "a shelf")


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.npz", kind="shelf", schema=1)
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(FileFormatError, match=r"a\.npz: not a shelf of tbmem"):
        read_archive(path, _parse, "a shelf")


def test_a_file_that_cannot_be_read_says_so_itself(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_archive(tmp_path / "gone.npz", _parse, "a shelf")


def test_a_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="no column colour"):
        AllocationRows.of(1, colour=[1])
