"""Every example runs as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import PROJECT

EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))
NEEDS_LAUNCHER = {"ddp_loop.py", "unmodified_script.py", "megatron_gpt.py"}
"""What is started by another program: torchrun, `tbmem run`, `tbmem estimate`."""
FRAMEWORKS = {
    "lightning_trainer": "lightning",
    "huggingface_trainer": "transformers",
    "accelerate_loop": "accelerate",
    "ignite_engine": "ignite",
    "keras_fit": "keras",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path.name not in NEEDS_LAUNCHER], ids=lambda path: path.stem
)
def test_example(example: Path, tmp_path: Path) -> None:
    framework = FRAMEWORKS.get(example.stem)
    if framework is not None and find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: pip install --group frameworks")
    # a framework warns of itself
    strict = ["-W", "error"] if framework is None else []
    command = [sys.executable, *strict, str(example), "--steps", "2" if framework is None else "12"]

    done = subprocess.run(
        [*command, "--logdir", str(tmp_path)], capture_output=True, text=True, timeout=240, cwd=PROJECT
    )

    assert done.returncode == 0, done.stderr
    assert any(tmp_path.iterdir())
    if framework is not None:
        _assert_files_of_twelve_steps(tmp_path)


def _assert_files_of_twelve_steps(logdir: Path) -> None:
    """What the plain loop leaves with the defaults."""
    (run,) = logdir.iterdir()
    patterns = ("*.pt.trace.json.gz", "*.addresses.npz", "events.out.tfevents.*", "plugins/tbmem/monitor.jsonl")
    assert [len(list(run.glob(pattern))) for pattern in patterns] == [1, 1, 1, 1]


@pytest.mark.slow
def test_a_script_that_knows_nothing_of_it(tmp_path: Path) -> None:
    script = [str(PROJECT / "examples/unmodified_script.py"), "--steps", "12"]
    command = [sys.executable, "-W", "error", "-m", "tbmem", "run", "--logdir", str(tmp_path), "--", *script]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    _assert_files_of_twelve_steps(tmp_path)


@pytest.mark.slow
def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    # given two ranks on this machine
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, str(PROJECT / "examples/ddp_loop.py"), "--steps", "12", "--logdir", str(tmp_path)]

    # when they train together
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)

    # then each has its sub-folder of one run, with traces, log and scalars, and only rank 0 spoke
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.iterdir()
    assert sorted(path.name for path in run.glob("rank*")) == ["rank0", "rank1"]
    for rank in ("rank0", "rank1"):
        assert len(list((run / rank).glob(f"*_{rank}.*.pt.trace.json.gz"))) == 1
        assert (run / rank / "plugins/tbmem/monitor.jsonl").stat().st_size > 0
        assert list((run / rank).glob("events.out.tfevents.*"))
    assert done.stderr.count("verdict CPU") == 1
