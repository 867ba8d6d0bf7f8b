"""What a cell's memory is as a text."""

from __future__ import annotations

from tbmem.model.cell_memory import CellLevels, CellMemory
from tbmem.model.oom import OomHolder
from tests.conftest import MIB


def test_a_cell_is_short_where_it_is_printed() -> None:
    # given
    kept = tuple(
        OomHolder(name=f"list '{name}'", bytes=size * MIB, count=3)
        for name, size in zip("abcde", (9, 8, 3, 2, 1), strict=True)
    )
    levels = (
        CellLevels(device="cpu", before=100 * MIB, after=123 * MIB, peak=340 * MIB),
        CellLevels(device="cuda:0", before=None, after=None, peak=None),
    )
    # when
    text = repr(CellMemory(seconds=3.2, levels=levels, kept=kept))
    # then
    assert text.splitlines() == [
        "Memory of a cell in 3.2 s",
        "  cpu: peak 340.00 MiB, change +23.00 MiB",
        "  cuda:0: no counters",
        "  kept: list 'a' +9.00 MiB, list 'b' +8.00 MiB, list 'c' +3.00 MiB, 2 more",
    ]


def test_a_cell_that_keeps_nothing_names_nothing() -> None:
    cell = CellMemory(seconds=0.5, levels=(CellLevels(device="cpu", before=5, after=5, peak=9),))
    assert repr(cell).splitlines() == ["Memory of a cell in 0.5 s", "  cpu: peak 9 B, change +0 B"]
