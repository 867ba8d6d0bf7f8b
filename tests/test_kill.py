"""What is left when a run is killed, or its disk is full."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tbmem.model.monitor_log import read_monitor_log

LOG = "run/plugins/tbmem/monitor.jsonl"


def _start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_after_kill_9_the_log_is_readable_up_to_the_last_flush(tmp_path: Path) -> None:
    # given a training that writes a row at every step
    training = _start(f"""
        import time
        from tbmem import MemoryCallback
        with MemoryCallback(
            run={{"logdir": {str(tmp_path)!r}, "name": "run"}},
            monitor={{"log_every_n_steps": 1}}, profiling={{"enabled": False}},
        ) as memory:
            step = 0
            while True:
                time.sleep(0.01)
                memory.step()
                step += 1
                print(step, flush=True)
    """)
    assert training.stdout is not None
    # when it is killed after 300 steps
    for line in training.stdout:
        if int(line) >= 300:
            break
    training.send_signal(signal.SIGKILL)
    training.communicate()

    # then all but the last seconds' steps can be read, in order, and the log knows no end
    log = read_monitor_log(tmp_path / LOG)
    steps = [row.sample.step for row in log.rows]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 50
    assert log.end is None
    assert log.damaged_lines <= 1


@pytest.mark.slow
def test_a_full_disk_is_one_warning_and_training_goes_on(tmp_path: Path) -> None:
    # given a limit of 20 kB on every file, which fails like a full disk
    training = _start(f"""
        import resource, torch
        from tbmem import MemoryCallback
        model = torch.nn.Linear(8, 8)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        with MemoryCallback(
            run={{"logdir": {str(tmp_path)!r}, "name": "run"}}, monitor={{"log_every_n_steps": 1}},
        ) as memory:
            for step in range(300):
                model(torch.randn(4, 8)).sum().backward()
                memory.step()
        print("trained", memory.summary.steps)
    """)

    # when it trains
    out, err = training.communicate(timeout=120)

    # then it trains to the end, with one warning
    assert training.returncode == 0, err
    assert out.strip() == "trained 300"
    warnings = [line for line in err.splitlines() if "training goes on" in line]
    assert len(warnings) == 1, err
    assert "cannot be written: File too large" in warnings[0]
    assert "problem: not written: the disk has not taken these" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_run_folder_that_vanishes_is_one_warning(tmp_path: Path) -> None:
    training = _start(f"""
        import shutil, torch
        from tbmem import MemoryCallback
        model = torch.nn.Linear(8, 8)
        with MemoryCallback(run={{"logdir": {str(tmp_path)!r}, "name": "run"}}) as memory:
            shutil.rmtree({str(tmp_path / "run")!r})
            for step in range(20):
                model(torch.randn(4, 8)).sum().backward()
                memory.step()
        print("trained", memory.summary.steps)
    """)

    out, err = training.communicate(timeout=120)

    assert (training.returncode, out.strip()) == (0, "trained 20"), err
    assert sum("training goes on" in line for line in err.splitlines()) == 1, err


@pytest.mark.slow
def test_an_interrupt_ends_in_order(tmp_path: Path) -> None:
    training = _start(f"""
        import time
        from tbmem import MemoryCallback
        with MemoryCallback(
            run={{"logdir": {str(tmp_path)!r}, "name": "run"}}, profiling={{"enabled": False}},
        ) as memory:
            while True:
                time.sleep(0.01)
                memory.step()
                print("step", flush=True)
    """)
    assert training.stdout is not None
    training.stdout.readline()
    time.sleep(0.2)
    training.send_signal(signal.SIGINT)
    _, err = training.communicate(timeout=60)

    assert "ended by KeyboardInterrupt" in err
    assert read_monitor_log(tmp_path / LOG).end is not None
