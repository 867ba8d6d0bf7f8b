"""The file that later runs are compared with."""

from __future__ import annotations

import json

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.baseline import Baseline


def test_what_was_written_is_read_again() -> None:
    written = Baseline({"rank 0 cpu": 100}, {"rank 0 cpu": 90}).to_json()

    read = Baseline.from_json(written)

    assert (read.peaks, read.levels) == ({"rank 0 cpu": 100}, {"rank 0 cpu": 90})
    assert json.loads(written) == {"schema": 1, "peaks": {"rank 0 cpu": 100}, "levels": {"rank 0 cpu": 90}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 1}',
        '{"schema": 1, "peaks": {"rank 0 cpu": "much"}}',
        '{"schema": 1, "peaks": {"rank 0 cpu": -1}}',
        '{"schema": 1, "peaks": {"rank 0 cpu": NaN}}',
        f'{{"schema": 1, "peaks": {{"rank 0 cpu": {10**400}}}}}',
        '{"schema": 1, "peaks": {}, "levels": []}',
        '{"schema": 2, "peaks": {}}',
        '{"peaks": {}}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(FileFormatError, match="baseline"):
        Baseline.from_json(text.encode())
