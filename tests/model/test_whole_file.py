"""Complete files or none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tbmem.model.whole_file import complete_or_nothing, compress


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a.pt.trace.json.gz"

    with complete_or_nothing(target) as partial:
        partial.write_text("all of it")
        assert not target.exists()
        assert not partial.name.endswith((".json", ".gz"))

    assert target.read_text() == "all of it"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def write() -> None:
        with complete_or_nothing(tmp_path / "a") as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_compress(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x" * 10_000)

    compress(tmp_path / "plain", tmp_path / "packed")

    assert gzip.decompress((tmp_path / "packed").read_bytes()) == b"x" * 10_000
