"""Every module has its tests at the same place in ``tests/``."""

from __future__ import annotations

from tests.layout import without_tests


def test_modules_have_a_test_file_of_their_name() -> None:
    assert without_tests() == []
