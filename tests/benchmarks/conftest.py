"""What the tests of the benchmarks share: a script as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import PROJECT


@pytest.fixture(scope="session")
def verdicts() -> ModuleType:
    """benchmarks/verdicts.py as a module: it is in no package."""
    return load(PROJECT / "benchmarks" / "verdicts.py")


def load(script: Path) -> ModuleType:
    """A script as a module; beside it lies what it imports."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module  # its dataclasses look their module up
    sys.path.insert(0, str(script.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(script.parent))
    return module
