"""Imports of tbmem's own in a thread of their own, where nothing of the program's reaches them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tbmem.untraced import apart, untraced


def test_without_a_recording_it_is_a_call() -> None:
    assert untraced(threading.current_thread) is threading.current_thread()


def test_under_torchs_tracer_it_is_a_call_in_another_thread() -> None:
    with torch.profiler.profile(with_stack=True):
        thread = untraced(threading.current_thread)
    assert thread is not threading.current_thread()


def test_an_error_is_the_callers() -> None:
    def fail() -> None:
        raise ValueError("no such thing")

    with torch.profiler.profile(with_stack=True), pytest.raises(ValueError, match="no such thing"):
        untraced(fail)


def test_no_thread_object_ends_in_the_programs_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # given that Python swallows what arrives in the callback that such an object has in threading._dangling
    monkeypatch.setattr(threading, "Thread", None)

    assert apart(threading.get_ident) != threading.get_ident()


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no SIGALRM here")
def test_a_timeout_of_the_program_is_not_taken_for_a_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a timeout that comes while an import looks for its file, which takes an OSError for "there is none"
    def timeout(_number: int, _frame: object) -> None:
        raise TimeoutError("the batch took too long")

    def imports() -> str:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            time.sleep(0.2)
        except OSError:
            return "swallowed"
        found.append("imported")
        return "imported"

    found: list[str] = []
    before = signal.signal(signal.SIGALRM, timeout)
    try:
        # when, then it reaches the program, and the import is completed
        with pytest.raises(TimeoutError, match="too long"):
            apart(imports)
    finally:
        signal.signal(signal.SIGALRM, before)
    deadline = time.monotonic() + 10
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == ["imported"]
    assert apart(lambda: "again") == "again"


_PROGRAM = """
import sys
import tbmem
import torch

getprofile, names = sys.getprofile, set()

def see(event, arguments):
    if event == "exec" and type(getprofile()).__name__ == "TraceContext":
        names.add(arguments[0].co_filename)

kept = []
sys.addaudithook(see)
with torch.profiler.profile(with_stack=True):
    with tbmem.MemoryCallback(run={"logdir": sys.argv[1]}) as memory:
        for _ in range(60):
            kept.append(torch.ones(1 << 18))
            memory.step()
print(*sorted(names), sep="\\n")
"""


@pytest.mark.slow
def test_no_module_is_imported_under_the_programs_tracer(tmp_path: Path) -> None:
    # given a program that records its own calls, first uses tbmem meanwhile, and leaks, so that holders are looked for
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    # when it has run
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    # then no code of a module was seen by torch, which would read its name when it is freed
    assert ended.stdout.split() == []
    assert list(tmp_path.rglob("evidence-*.json"))
