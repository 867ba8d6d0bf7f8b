"""The corpus's programs, which nobody wrote for tbmem, unmodified but for their length, under ``tbmem run``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MIB

Record = Mapping[str, Any]
pytestmark = pytest.mark.slow


def _findings(
    program: Path, folder: Path, shorter: tuple[str, str] = ("", ""), launcher: Sequence[str] = (sys.executable,)
) -> tuple[list[Record], Record, str]:
    """The findings of a run, its verdict, and what it said."""
    script = folder / program.name
    text = program.read_text()
    assert shorter[0] in text
    script.write_text(text.replace(*shorter))
    watched = ["-m", "tbmem", "run", "run.name=run", "--logdir", str(folder / "runs"), "--", str(script)]
    done = subprocess.run([*launcher, *watched], capture_output=True, text=True, timeout=280, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    log = next((folder / "runs").rglob("monitor*.jsonl"))
    records = [json.loads(line) for line in log.read_text().splitlines()]
    findings = [each for each in records if each["type"] == "finding"]
    return findings, records[-1]["verdicts"][0], done.stderr


def _of_kind(findings: list[Record], *kinds: str) -> list[Record]:
    return [each for each in findings if each["kind"] in kinds]


@pytest.fixture
def programs(corpus: Path) -> Path:
    return corpus / "programs"


def test_lists_that_each_episode_empties_are_no_leak(programs: Path, tmp_path: Path) -> None:
    findings, verdict, _ = _findings(programs / "ac.py", tmp_path, ("range(330)", "range(240)"))

    assert not _of_kind(findings, "leak", "level_shift", "periodic", "spike")
    assert verdict["kind"] in ("stable", "growing")


def test_small_kept_objects_that_pin_the_heap_are_one_leak_with_its_true_rate(programs: Path, tmp_path: Path) -> None:
    findings, verdict, _ = _findings(programs / "rnn_hist.py", tmp_path, ("range(200)", "range(120)"))

    leaks = _of_kind(findings, "leak")
    assert {leak["evidence"]["holder"] for leak in leaks} == {"module-level list 'history' in rnn_hist.py"}
    assert verdict["kind"] == "leak"
    assert 8 * MIB < verdict["evidence"]["bytes_per_step"] < 40 * MIB
    assert "history.append" in verdict["message"]


def test_figures_that_are_never_closed_are_named_with_the_line_that_makes_them(programs: Path, tmp_path: Path) -> None:
    findings, verdict, _ = _findings(programs / "figs1.py", tmp_path, ("range(400)", "range(75)"))

    assert verdict["kind"] == "leak"
    assert verdict["evidence"]["holder"] == "Gcf.figs"
    assert "plt.figure()" in verdict["message"]
    assert "plt.close(fig)" in _of_kind(findings, "leak")[0]["advice"]


def test_a_loss_that_is_summed_over_an_epoch_is_told_with_what_it_kept(programs: Path, tmp_path: Path) -> None:
    findings, _, said = _findings(programs / "vae_sum.py", tmp_path)

    assert _of_kind(findings, "leak")[0]["evidence"]["holder"].startswith("module-level tensor 'train_loss'")
    freed = [each["message"] for each in findings if "are free again" in each["message"]]
    assert freed
    assert "train_loss += loss" in freed[0]
    assert "it was no leak" not in said


def test_sharded_tensors_do_not_end_the_profiler(programs: Path, tmp_path: Path) -> None:
    torchrun = shutil.which("torchrun", path=str(Path(sys.executable).parent))
    assert torchrun is not None
    launcher = (torchrun, "--standalone", "--nproc-per-node", "2")

    # without a rest, the end of gloo's threads aborts one process in six, in plain Python as well (torch 2.13)
    end = "dist.destroy_process_group()"
    rested = f"dist.barrier(); import time; time.sleep(0.5); {end}; time.sleep(0.5)"

    findings, verdict, said = _findings(programs / "f2.py", tmp_path, (end, rested), launcher)

    assert not _of_kind(findings, "leak", "spike")
    assert verdict["kind"] == "stable"
    assert "is off" not in said


def test_nothing_of_a_forward_pass_without_a_backward_pass_stays_alive(programs: Path, tmp_path: Path) -> None:
    program = programs / "forward_without_backward.py"

    done = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr
