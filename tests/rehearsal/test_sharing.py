"""Processes of one rehearsal share the memory of its GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbmem.rehearsal import library

MIB = 1 << 20
CAPACITY, CONTEXT = 1000 * MIB, 100 * MIB
PROGRAM = """
import ctypes, os, sys
cuda = ctypes.CDLL(sys.argv[1])
taken = []
def take(mib):
    pointer = ctypes.c_size_t()
    code = cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
    taken.append(pointer)
    return code
def free():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    return free.value >> 20
class Short(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)]
class Long(Short):
    _fields_ = [("instances", ctypes.c_uint * 2)]
def processes(kind, number=0):
    count, handle, found = ctypes.c_uint(0), ctypes.c_void_p(), (kind * 9)()
    ask = cuda["nvmlDeviceGetComputeRunningProcesses" + ("_v3" if kind is Long else "")]
    cuda.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
    too_short = ask(handle, ctypes.byref(count), None)
    ask(handle, ctypes.byref(count), found)
    return [too_short, *sorted((each.pid, each.bytes >> 20) for each in found[:count.value])]
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Process:
    """A process on simulated GPUs that evaluates expressions."""

    def __init__(self, library: Path, **settings: str) -> None:
        environment = {**os.environ, **settings}
        command = [sys.executable, "-c", PROGRAM, str(library)]
        self.running = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, expression: str) -> str:
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write(expression + "\n")
        return self.running.stdout.readline().strip()


@pytest.fixture
def start(built: Path, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts processes on two GPUs of 1000 MiB, 100 MiB of them for each context."""
    started: list[Process] = []

    def start(**settings: str) -> Process:
        words = {"BYTES": str(CAPACITY), "CONTEXT_BYTES": str(CONTEXT), "COUNT": "2", "FOLDER": str(tmp_path)}
        variables = {f"TBMEM_GPU_{name}": value for name, value in words.items()}
        started.append(Process(built / library.MAIN, **{**variables, **settings}))
        return started[-1]

    yield start
    for process in started:
        process.running.kill()
        process.running.communicate()


def test_what_one_process_takes_another_cannot(start: Callable[..., Process]) -> None:
    # given a process with 600 MiB and its context
    one, other = start(), start()
    assert one("take(600)") == "0"
    # when another one looks, then the sum counts, and what exceeds the device is refused
    assert other("free()") == "200"
    assert (other("take(202)"), other("take(200)"), other("free()")) == ("2", "0", "0")
    expected = str([7, *sorted([(one.running.pid, 700), (other.running.pid, 300)])])
    assert (other("processes(Short)"), one("processes(Long)")) == (expected, expected)
    # when the first gives it back, then it can be taken
    assert one("cuda.cudaFree(taken[0])") == "0"
    assert other("take(600)") == "0"
    # then the other GPU has not been touched
    assert one("len(processes(Long, 1))") == "2"


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_process_that_has_ended_holds_nothing(start: Callable[..., Process], end: str) -> None:
    # given a process that ends without a word
    one, other = start(), start()
    one("take(600)")
    one(end)
    one.running.wait(timeout=30)
    # when another one looks, then its memory is free, and the slot as well
    assert (other("free()"), other("take(900)")) == ("900", "0")


def test_a_forked_child_does_not_end_what_its_parent_holds(start: Callable[..., Process]) -> None:
    # given a process that has forked a child, which ends
    one, other = start(), start()
    one("take(600)")
    assert one("os.waitpid(os.fork() or os._exit(0), 0)[1]") == "0"
    # when another one looks, then the parent's memory still counts
    assert other("free()") == "200"


def test_a_stopped_process_keeps_its_memory(start: Callable[..., Process]) -> None:
    one, other = start(), start()
    one("take(600)")
    one.running.send_signal(signal.SIGSTOP)
    assert other("free()") == "200"
    one.running.send_signal(signal.SIGCONT)


def test_without_the_folder_each_process_is_alone(start: Callable[..., Process], tmp_path: Path) -> None:
    alone, nowhere = start(TBMEM_GPU_FOLDER=""), start(TBMEM_GPU_FOLDER=str(tmp_path / "gone"))
    assert (alone("take(600)"), nowhere("take(600)"), nowhere("free()")) == ("0", "0", "300")


def test_visible_devices_are_numbered_from_zero(start: Callable[..., Process]) -> None:
    # given a process that sees the second GPU only, and one that sees both in reverse
    one, other = start(CUDA_VISIBLE_DEVICES="1"), start(CUDA_VISIBLE_DEVICES="GPU-02000000,0,7")
    one("take(600)")
    # when the other looks at its first, then it is the same GPU
    assert (other("free()"), other("cuda.cudaSetDevice(1)"), other("free()")) == ("200", "0", "900")
    assert (one("cuda.cudaSetDevice(1)"), other("cuda.cudaSetDevice(2)")) == ("101", "101")
