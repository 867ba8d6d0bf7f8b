"""What tests of the configuration share: an environment without settings, and a place for a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests are not part of them."""
    for name in [name for name in os.environ if name.startswith("TBMEM_") and name != "TBMEM_CORPUS"]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.yaml"
