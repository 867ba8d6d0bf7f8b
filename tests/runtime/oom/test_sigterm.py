"""SIGTERM writes what is left and then does what it did before."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tbmem.model.monitor_log import read_monitor_log
from tbmem.runtime.oom.sigterm import forget_sigterm, on_sigterm


@pytest.fixture
def told() -> list[int]:
    return []


def test_a_previous_handler_is_called_and_put_back(told: list[int]) -> None:
    # given a handler of the program's own
    flushes: list[bool] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    own = signal.getsignal(signal.SIGTERM)
    try:
        # when a run listens, and the signal comes
        on_sigterm(flushes.append)
        signal.raise_signal(signal.SIGTERM)
        forget_sigterm(flushes.append)

        # then both were told, the process goes on, and the handler is the program's again
        assert (told, flushes) == ([signal.SIGTERM], [False])
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_that_is_installed_later_stays_and_decides(told: list[int]) -> None:
    flushes: list[bool] = []
    before = signal.getsignal(signal.SIGTERM)
    on_sigterm(flushes.append)
    ours = signal.getsignal(signal.SIGTERM)
    try:
        # given a program that puts its own handler on top, and calls what was there
        def later(number: int, frame: object) -> None:
            told.append(number)
            assert callable(ours)
            ours(number, None)

        signal.signal(signal.SIGTERM, later)
        # when the signal comes
        signal.raise_signal(signal.SIGTERM)
        # then it is flushed, and what it says holds: the process lives
        assert (told, flushes) == ([signal.SIGTERM], [False])

        # and when the run ends, the program's handler stays
        forget_sigterm(flushes.append)
        assert signal.getsignal(signal.SIGTERM) is later
        # and a second run on top does not run in circles
        on_sigterm(flushes.append)
        signal.raise_signal(signal.SIGTERM)
        forget_sigterm(flushes.append)
        assert signal.getsignal(signal.SIGTERM) is later
        assert told == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_two_runs_share_one_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)
    one: list[bool] = []
    other: list[bool] = []
    on_sigterm(one.append)
    on_sigterm(other.append)
    forget_sigterm(one.append)
    assert signal.getsignal(signal.SIGTERM) is not before
    forget_sigterm(other.append)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        flush: list[bool] = []
        on_sigterm(flush.append)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        forget_sigterm(flush.append)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGTERM)
    flush: list[bool] = []
    thread = threading.Thread(target=on_sigterm, args=(flush.append,))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def _train(tmp_path: Path, program: str) -> subprocess.Popen[str]:
    head = f"""
        import os, signal, sys, time
        from tbmem import MemoryCallback
        memory = MemoryCallback(
            run={{"logdir": {str(tmp_path)!r}, "name": "run"}}, profiling={{"enabled": False}},
            monitor={{"log_every_n_steps": 1000}},
        )
        memory.start()
        for step in range(73):
            time.sleep(0.002)
            memory.step()
    """
    text = textwrap.dedent(head) + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )


def _steps(tmp_path: Path) -> int:
    log = read_monitor_log(tmp_path / "run/plugins/tbmem/monitor.jsonl")
    return log.rows[-1].sample.step if log.rows else 0


@pytest.mark.slow
def test_the_process_dies_of_it_as_it_would_have_with_all_steps_written(tmp_path: Path) -> None:
    # given a training whose scheduler ends it in step 74
    training = _train(tmp_path, "print('ready', flush=True)\ntime.sleep(60)\n")
    assert training.stdout is not None
    training.stdout.readline()
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=30)

    # then it has died by the signal, and the log has its last step and what ended it
    assert training.returncode == -signal.SIGTERM
    assert _steps(tmp_path) == 73
    path = tmp_path / "run/plugins/tbmem/monitor.jsonl"
    log = read_monitor_log(path)
    assert log.end is None
    assert log.signal is not None
    assert (log.signal["name"], log.signal["step"]) == ("SIGTERM", 73)


@pytest.mark.slow
def test_a_handler_that_exits_has_its_exit_code_and_the_run_its_end(tmp_path: Path) -> None:
    training = _train(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        """,
    )
    training.communicate(timeout=30)

    assert training.returncode == 7
    assert _steps(tmp_path) == 73


@pytest.mark.slow
def test_a_forked_child_dies_of_it_and_writes_nothing(tmp_path: Path) -> None:
    training = _train(
        tmp_path,
        """
        child = os.fork()
        if child == 0:
            time.sleep(60)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        print(os.waitpid(child, 0)[1], flush=True)
        memory.stop()
        """,
    )
    out, _ = training.communicate(timeout=30)

    assert (training.returncode, out.strip()) == (0, str(int(signal.SIGTERM)))
    text = (tmp_path / "run/plugins/tbmem/monitor.jsonl").read_text()
    assert '"signal"' not in text
    assert _steps(tmp_path) == 73
