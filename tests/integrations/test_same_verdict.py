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


Verdicts = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def verdicts(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """The verdict of each loop under a driver, found once: a process for each driver, of scripts one for each loop."""

    def found(how: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(how)
        loops = [corpus / "loops" / f"{name}.py" for name in LOOPS]
        if how == "script":
            for loop in loops:
                watched = ["-m", "tbmem", "run", f"run.name={loop.stem}", "profiling.enabled=false"]
                _train([*watched, "--logdir", str(folder), "--"], how, folder, [loop])
        else:
            _train([], how, folder, loops)
        return {name: _verdict(folder / name) for name in LOOPS}

    return cache(found)


def _train(under: list[str], how: str, folder: Path, loops: list[Path]) -> None:
    program = [str(DRIVERS), how, str(STEPS), str(folder), *map(str, loops)]
    done = subprocess.run([sys.executable, *under, *program], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr


def _verdict(run: Path) -> str:
    """The verdict of the CPU."""
    state = RankState()
    state.add(read_monitor_log(run / "plugins/tbmem/monitor.jsonl"))
    assert state.step == STEPS
    return state.verdict("cpu").value


@pytest.mark.parametrize("how", ["lightning", "huggingface", "script"])
@pytest.mark.parametrize("name", LOOPS)
def test_the_same_verdict(how: str, name: str, verdicts: Verdicts) -> None:
    if how in FRAMEWORKS and find_spec(FRAMEWORKS[how]) is None:
        pytest.skip(f"{FRAMEWORKS[how]} is not installed: pip install --group frameworks")

    assert verdicts(how)[name] == verdicts("plain")[name]
