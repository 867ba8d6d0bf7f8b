"""Allocations as a spreadsheet."""

from __future__ import annotations

import csv
import io

from tbmem.present.exports.allocations_csv import allocations_csv
from tests.present.exports.traces import traced


def test_csv() -> None:
    analysis = traced()

    rows = list(csv.DictReader(io.StringIO(allocations_csv(analysis))))

    assert len(rows) == len(analysis.timeline.rows)
    found = next(row for row in rows if row["name"] == "net.0.weight")
    assert (found["category"], found["basis"], found["bytes"], found["device"]) == ("PARAMETER", "known", "800", "cpu")
    assert {row["line"] for row in rows} == {"", "me/train.py:10 loss_of"}
