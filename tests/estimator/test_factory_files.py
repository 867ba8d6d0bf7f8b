"""What is read of a factory's file without executing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.estimator.factory_files import default_batch, takes_no_batch


@pytest.mark.parametrize(
    ("arguments", "batch"),
    [
        ("batch: int = 16", 16),
        ("batch=8, *, sequence=4", 8),
        ("*, sequence=4, batch=2", 2),
        ("sequence, batch", None),
        ("batch=SIZE", None),
        ("sequence=4", None),
        ("batch=0", None),
    ],
)
def test_the_default_batch_of_a_factory(tmp_path: Path, arguments: str, batch: int | None) -> None:
    (tmp_path / "mine.py").write_text(f"import nothing_that_exists\n\ndef make({arguments}):\n    raise SystemExit\n")

    assert default_batch("mine.py:make", str(tmp_path)) == batch
    assert default_batch("mine.py:other", str(tmp_path)) is None
    assert default_batch("gpt2", str(tmp_path)) is None


@pytest.mark.parametrize(
    ("arguments", "without"),
    [("", True), ("sequence=4", True), ("batch", False), ("*, batch=2", False), ("**options", False)],
)
def test_whether_a_factory_takes_a_batch(tmp_path: Path, arguments: str, without: bool) -> None:
    (tmp_path / "mine.py").write_text(f"def make({arguments}):\n    raise SystemExit\n")

    assert takes_no_batch("mine.py:make", str(tmp_path)) is without
    # of what is not known nothing is said
    assert not takes_no_batch("mine.py:other", str(tmp_path))
    assert not takes_no_batch("package.module:make", str(tmp_path))
