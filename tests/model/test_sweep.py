"""Cells as records."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tbmem.model.sweep import SweepCell, file_stems
from tests.sweeps import CASE, a_sweep


def test_a_cell_comes_back_from_json_as_it_was() -> None:
    for cell in a_sweep().cells:
        assert msgspec.json.decode(msgspec.json.encode(cell), type=SweepCell) == cell


def test_names_of_files_are_as_short_as_they_can_be() -> None:
    assert list(file_stems((CASE, replace(CASE, what="forward")))) == ["small_ctx128_training", "small_ctx128_forward"]
    assert list(file_stems((CASE, replace(CASE, precision="bf16")))) == [
        "small_ctx128_training_fp32",
        "small_ctx128_training_bf16",
    ]
    assert list(file_stems((CASE, replace(CASE, batch=8)))) == [
        "small_ctx128_batch4_training",
        "small_ctx128_batch8_training",
    ]
