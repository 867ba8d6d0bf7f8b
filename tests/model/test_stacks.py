"""Interned stacks and names."""

from __future__ import annotations

from tbmem.model.stacks import Frame, Names, StackBuilder


def test_stacks_are_interned() -> None:
    # given stacks at the lines 3, 4 and 3 again
    builder = StackBuilder()
    numbers = [
        builder.stack([builder.frame("a.py", line, "f"), builder.frame("main.py", 1, "<module>")]) for line in (3, 4, 3)
    ]
    # when
    table = builder.table()
    # then
    assert len(table) == 2
    assert table.of(numbers[0]) == table.of(numbers[2]) == (Frame("a.py", 3, "f"), Frame("main.py", 1, "<module>"))
    assert table.of(-1) == ()
    assert str(table.of(0)[0]) == "a.py:3 f"


def test_names_have_no_number_for_the_empty_word() -> None:
    names = Names()

    assert [names[word] for word in ("", "a", "b", "a")] == [-1, 0, 1, 0]
    assert tuple(names) == ("a", "b")
