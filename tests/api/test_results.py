"""Results: short, the same as the engine's record, and frozen."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from tbmem.api.results import Largest, Rehearsal, as_result
from tbmem.model import rehearsal as model
from tests.rehearsal.records import process, rehearsal


def test_a_result_has_all_fields_of_the_record() -> None:
    record = rehearsal(process(), program="train.py")

    result = as_result(Rehearsal, record)

    assert {field.name: getattr(result, field.name) for field in fields(record)} == {
        field.name: getattr(record, field.name) for field in fields(record)
    }
    with pytest.raises(FrozenInstanceError):
        result.program = "other"  # type: ignore[misc]


def test_none_of_the_range_fits() -> None:
    nothing = model.Largest(name="batch", value=None, is_bounded=True, trials=(), result=None)

    assert repr(as_result(Largest, nothing)) == "No batch of the range fits, the smallest neither."
