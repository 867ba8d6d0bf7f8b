"""The checks of ``benchmarks/gpu_check.py``, one test each; on a machine without a GPU all are skipped, visibly."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest

from tbmem.rehearsal.environment import is_simulated
from tests.conftest import PROJECT

SCRIPT = PROJECT / "benchmarks" / "gpu_check.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check_on_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


gpu_check = _load()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),  # estimates beside real peaks are some twenty trainings in processes of their own
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return gpu_check.Bench(tmp_path_factory.mktemp("artefacts"), tmp_path_factory.mktemp("scratch"))


@pytest.mark.parametrize(("name", "check"), [pytest.param(*each, id=each[0]) for each in gpu_check.CHECKS])
def test_on_gpu(bench: Any, name: str, check: Any) -> None:
    if name in gpu_check.NEED_A_CLOCK and is_simulated():
        pytest.skip(f"needs a real GPU: {gpu_check.NEED_A_CLOCK[name]}")
    # given a device, when the check runs, then it raises nothing and has a figure to show
    assert check(bench)
