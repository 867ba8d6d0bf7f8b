"""Processes below this one: what they hold, and what copy-on-write has copied."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tbmem.sources.counters import child_processes as module
from tbmem.sources.counters.child_processes import Children, find_children, private_bytes, resident_bytes
from tests.sources.fakes import MIB

needs_proc = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the kernel has no smaps_rollup")


@contextmanager
def child(program: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that runs ``program``, says so, and waits."""
    text = f"{textwrap.dedent(program)}\nprint('ready', flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", text], text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.communicate("\n")


def test_children_of_children_are_found() -> None:
    # given
    grandchild = "import subprocess, sys; held = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0)"
    with child(grandchild) as process:
        # when
        found = find_children(os.getpid())
        # then
        expected = {each.pid for each in psutil.Process().children(recursive=True)}
        assert {process.pid} < expected
        assert set(found) == expected


def test_a_child_that_has_ended_is_left_to_the_program_that_waits_for_it() -> None:
    # given
    with child() as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # when
        find_children(os.getpid())
        # then
        assert process.wait(10) == -signal.SIGKILL


def test_a_process_without_children_opens_no_file() -> None:
    # given: a process of its own, since the tests' one may have children
    program = """
        import os, pathlib, sys
        from tbmem.sources.counters import child_processes as module
        opened = []
        sys.addaudithook(lambda event, args: opened.append(args) if event == "open" else None)
        assert module.find_children(os.getpid()) == []
        assert not opened, opened
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


def test_without_the_kernels_lists_every_process_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(module.os.path, "exists", lambda path: False)
    with child() as process:
        # when / then
        assert process.pid in find_children(os.getpid())


def test_resident_and_private_memory_agree_with_psutil() -> None:
    with child("held = bytearray(80 << 20)") as process:
        # when
        resident, private = resident_bytes(process.pid), private_bytes(process.pid)
        # then
        told = psutil.Process(process.pid).memory_full_info()
        assert resident == pytest.approx(told.rss, rel=0.05)
        assert private == pytest.approx(told.uss, rel=0.05)
        assert private is not None
        assert private > 80 * MIB


@pytest.mark.parametrize("read", [resident_bytes, private_bytes])
def test_a_process_that_has_ended_holds_nothing(read: Callable[[int], int | None]) -> None:
    # given one that is gone, and one whose parent has not asked for its end yet
    with subprocess.Popen([sys.executable, "-c", "import sys; print('x'); sys.exit()"], stdout=-1) as ended:
        assert ended.stdout is not None
        ended.stdout.read()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        # when / then
        assert read(ended.pid) == 0
        ended.wait()
    assert read(ended.pid) == 0


def test_memory_that_nobody_may_know_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a process of somebody else
    def refuse(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(psutil.Process, "memory_full_info", refuse)
    # when / then
    assert private_bytes(os.getpid()) is None


class Processes:
    """Hand-built processes whose private memory takes a time to read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now = 0.0
        self.sizes: dict[int, int | None] = {}
        self.reads: list[int] = []
        self._seconds = seconds
        monkeypatch.setattr(module, "find_children", lambda pid: list(self.sizes))
        monkeypatch.setattr(module, "resident_bytes", lambda pid: 100)
        monkeypatch.setattr(module, "private_bytes", self._read)

    def _read(self, pid: int) -> int | None:
        self.reads.append(pid)
        self.now += self._seconds
        return self.sizes[pid]

    def clock(self) -> float:
        return self.now


def test_private_memory_is_the_sum_over_all_children(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    processes = Processes(monkeypatch, 1e-3)
    processes.sizes = {1: 10, 2: 20}
    children = Children(clock=processes.clock, cost=processes.clock)
    # when / then
    assert children.read() == (200, 30)
    processes.sizes[2] = 25
    processes.now += 1
    assert children.read() == (200, 35)


def test_what_a_child_has_grown_by_since_its_private_memory_was_read_is_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given readings so slow that the next one is not due for long
    processes = Processes(monkeypatch, 0.5)
    processes.sizes = {1: 10}
    children = Children(clock=processes.clock, cost=processes.clock)
    children.read()
    # when
    monkeypatch.setattr(module, "resident_bytes", lambda pid: 160)
    # then
    assert children.read() == (160, 70)
    assert processes.reads == [1]


def test_a_child_that_ended_leaves_no_figure_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # given readings so slow that the next one is not due for long
    processes = Processes(monkeypatch, 0.1)
    processes.sizes = {1: 10}
    children = Children(clock=processes.clock, cost=processes.clock)
    children.read()
    # when
    del processes.sizes[1]
    # then
    assert children.read() == (0, 0)
    # and another of the same number is not taken for it
    processes.sizes[1] = 99
    assert children.read()[1] is None


def test_one_unknown_child_makes_the_sum_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    processes = Processes(monkeypatch, 1e-3)
    processes.sizes = {1: 10, 2: None}
    # when / then
    assert Children(clock=processes.clock, cost=processes.clock).read() == (200, None)


def test_reading_takes_two_thousandths_of_the_time_and_serves_all_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    # given 8 processes, 20 ms each
    processes = Processes(monkeypatch, 0.02)
    processes.sizes = dict.fromkeys(range(8), 10)
    children = Children(clock=processes.clock, cost=processes.clock)
    # when ten minutes go by
    for _ in range(600):
        children.read()
        processes.now += 1
    # then
    spent = 0.02 * len(processes.reads)
    assert 1.0 < spent <= 0.02 + 0.002 * processes.now + 0.02
    counts = [processes.reads.count(pid) for pid in range(8)]
    assert max(counts) - min(counts) <= 1
    assert children.read()[1] == 80


@needs_proc
@pytest.mark.slow
def test_a_forked_child_that_touches_its_parents_list_copies_pages() -> None:
    # given a worker that reads more of its parent's list at each word it is sent
    program = """
        import gc, os, sys
        from tbmem.sources.counters.child_processes import Children
        meta = [str(number).zfill(64) for number in range(200_000)]
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(our_out)
            while word := os.read(their_in, 1):
                for item in meta[:50_000 * int(word)]:
                    pass
                os.write(their_out, b".")
            os._exit(0)
        children = Children()
        for word in b"0123":
            os.write(our_out, bytes([word]))
            os.read(our_in, 1)
            children._credit = 1.0
            print(*children.read())
        os.close(our_out)
        os.waitpid(pid, 0)
        print(*children.read())
    """
    # when
    output = subprocess.check_output([sys.executable, "-c", textwrap.dedent(program)], text=True, timeout=60)
    readings = [tuple(map(int, line.split())) for line in output.splitlines()]
    # then its private memory grows by the size of the items, its resident memory does not
    resident = [reading[0] for reading in readings]
    private = [reading[1] for reading in readings]
    grown = [after - before for before, after in zip(private, private[1:4], strict=False)]
    assert all(4 * MIB < growth < 9 * MIB for growth in grown), grown
    assert max(resident[:4]) - resident[0] < 3 * MIB
    assert readings[4] == (0, 0)
