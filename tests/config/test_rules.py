"""What the path of a folder may look like."""

from __future__ import annotations

import pytest

from tbmem.config.rules import ENCODABLE, is_address


@pytest.mark.parametrize("path", ["s3://bucket", "gs://bucket/runs", "hdfs://node:9000/runs", "file:///tmp/runs"])
def test_an_address_of_a_storage_is_told_apart_from_a_folder(path: str) -> None:
    assert is_address(path)


@pytest.mark.parametrize("path", ["runs", "/scratch/runs", "a/s3://b", "C://runs", "s3:", "~/runs"])
def test_a_folder_is_no_address(path: str) -> None:
    assert not is_address(path)


@pytest.mark.parametrize(
    ("path", "holds"), [("Läufe/λ\u3000", True), ("a\0", False), ("\udcff", False), ("a\x1b", False)]
)
def test_what_cannot_be_written_to_a_file_is_no_name(path: str, holds: bool) -> None:
    assert ENCODABLE[1](path) is holds
