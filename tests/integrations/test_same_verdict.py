"""A loop of the corpus gets the same verdict in a framework, and as an unmodified script, as in the plain loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.monitor_log import read_monitor_log

STEPS = 150
LOOPS = ["state_dict_history", "ok_scalar_tensor_history", "eval_loss_sum_keeps_graph", "spike_outlier_sequence"]
FRAMEWORKS = {"lightning": "lightning", "huggingface": "transformers"}
DRIVERS = Path(__file__).with_name("drivers.py")


@pytest.fixture(scope="module")
def plain_verdict(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """The verdict in the plain loop, found once."""
    return cache(lambda loop: _verdict("plain", loop, tmp_path_factory.mktemp("plain")))


def _verdict(how: str, loop: Path, folder: Path) -> str:
    """Train in a process of its own; the verdict of the CPU."""
    program = [str(DRIVERS), how, str(loop), str(STEPS), str(folder)]
    watched = ["-m", "tbmem", "run", "run.name=run", "profiling.enabled=false", "--logdir", str(folder), "--"]
    prefix = watched if how == "script" else []
    done = subprocess.run([sys.executable, *prefix, *program], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    state = RankState()
    state.add(read_monitor_log(folder / "run/plugins/tbmem/monitor.jsonl"))
    assert state.step == STEPS
    return state.verdict("cpu").value


@pytest.mark.parametrize("how", ["lightning", "huggingface", "script"])
@pytest.mark.parametrize("name", LOOPS)
def test_the_same_verdict(
    how: str, name: str, corpus: Path, tmp_path: Path, plain_verdict: Callable[[Path], str]
) -> None:
    if how in FRAMEWORKS and find_spec(FRAMEWORKS[how]) is None:
        pytest.skip(f"{FRAMEWORKS[how]} is not installed: pip install --group frameworks")
    loop = corpus / "loops" / f"{name}.py"

    assert _verdict(how, loop, tmp_path) == plain_verdict(loop)
