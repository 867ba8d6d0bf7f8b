"""Tables of a sweep that was made up."""

from __future__ import annotations

from dataclasses import replace

from tbmem.model.sweep import MemoryPeak
from tbmem.present.text.sweep import activation_text, cell_line, largest_text, peak_table, precision_table
from tests.sweeps import a_sweep


def test_peaks_stand_measured_beside_predicted_and_no_memory_is_a_cell() -> None:
    text = "\n".join(peak_table(a_sweep()))

    assert "3.00 GiB | 3.00 GiB" in text
    assert "out of memory | 2.00 GiB" in text
    assert "4.00 GiB | 4.00 GiB" in text  # reserved
    assert "CUDA out of memory." in text


def test_rows_begin_with_full_precision_and_the_batch_is_told() -> None:
    made = a_sweep()
    rows = [line.split() for line in peak_table(replace(made, cells=made.cells[::-1]))]

    assert [row[3] for row in rows if row[:1] == ["small"]] == ["fp32", "bf16"]
    assert "  small  4      128      training" in "\n".join(precision_table(made))


def test_without_a_caching_allocator_there_is_no_column_of_reserved_bytes() -> None:
    made = a_sweep()
    bare = MemoryPeak(allocated=5)
    cells = tuple(replace(cell, measured=cell.measured and bare, predicted=bare) for cell in made.cells)

    assert "reserved" not in "\n".join(peak_table(replace(made, cells=cells)))
    assert "reserved (forward)" in "\n".join(peak_table(made))


def test_a_forward_pass_that_needs_more_in_mixed_precision_says_so() -> None:
    made = a_sweep()
    full, mixed = (replace(cell, case=replace(cell.case, what="forward")) for cell in made.cells)
    larger = replace(mixed, predicted=MemoryPeak(allocated=4 << 30, parts={"parameter": 500 << 20}))

    assert "in bf16, which is more, not less" in "\n".join(precision_table(replace(made, cells=(full, larger))))
    assert "not less" not in "\n".join(precision_table(replace(made, cells=(full, mixed))))


def test_mixed_precision_says_why_so_little_is_saved_with_this_models_bytes() -> None:
    text = "\n".join(precision_table(a_sweep()))

    assert "- | 33.3 %" in text
    assert "1.95 GiB of 3.00 GiB (65 %)" in text
    assert "from 600.00 MiB to 400.00 MiB" in text


def test_an_activation_of_the_residual_stream_is_derived() -> None:
    text = "\n".join(activation_text(a_sweep()))

    assert "4 x 128 x 768 = 393,216 values x 4 bytes = 1,572,864 bytes = 1.50 MiB" in text
    assert "as much as 400 such tensors, 33.3 for each of 12 layers" in text


def test_the_largest_come_with_their_lines() -> None:
    text = "\n".join(largest_text(a_sweep()))

    assert "29.00 MiB  Gradient  output  model.py:12 forward" in text
    assert "training, fp32: the peak is measured in the backward pass, predicted in the backward pass" in text


def test_a_cell_is_a_line() -> None:
    measured, mixed = a_sweep().cells

    assert cell_line(measured).startswith(
        "small, 128 tokens, batch 4, training, fp32: peak 3.00 GiB, reserved 4.00 GiB"
    )
    assert "out of memory (CUDA out of memory.)" in cell_line(mixed)
