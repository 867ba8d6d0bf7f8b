"""Files are written in the background, in order, bounded in memory, and again after an error."""

from __future__ import annotations

import threading
import time

import pytest

from tbmem.runtime.process.file_writer import FileWriter
from tbmem.runtime.process.guard import Guard


class Disk:
    """Files that take as long as they are told to."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.gate, self.reached = threading.Event(), threading.Event()
        self.refuses = False

    def hang(self) -> None:
        self.reached.set()
        self.gate.wait(60)

    def write(self, name: str) -> None:
        if self.refuses:
            raise OSError(28, "No space left on device")
        self.written.append(name)


def _soon() -> float:
    return time.monotonic() + 60


def test_files_are_written_in_order_by_a_thread_that_ends() -> None:
    disk, writer = Disk(), FileWriter(Guard())

    for name in "abc":
        writer.put(name, 1, lambda name=name: disk.write(name))  # type: ignore[misc]

    assert writer.end(_soon()) == []
    assert disk.written == ["a", "b", "c"]


def test_where_no_thread_can_start_files_are_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a process near the limit of its addresses
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    disk, writer = Disk(), FileWriter(Guard())
    # when
    writer.put("a", 1, lambda: disk.write("a"))
    answer = writer.ask(lambda: list(disk.written), _soon())
    # then
    assert answer == ["a"]
    # and a disk that refuses is not waited for
    disk.refuses = True
    writer.put("b", 1, lambda: disk.write("b"))
    assert writer.unwritten == ["b"]
    assert writer.end(_soon()) == ["b"]


def test_a_disk_that_hangs_costs_no_more_than_its_memory(caplog: pytest.LogCaptureFixture) -> None:
    # given a disk that does not answer, and room for 100 bytes
    disk, writer, dropped = Disk(), FileWriter(Guard(), most=100), []
    writer.put("first", 10, disk.hang)
    assert disk.reached.wait(60)
    # when windows keep coming, and a report
    for number in range(10):
        writer.put(f"window {number}", 30, disk.hang, group="windows", dropped=lambda: dropped.append(1))
    writer.put("report", 5, lambda: disk.write("report"), must=True)
    # then the oldest windows are dropped, which is said once; nobody waits longer than asked for
    assert writer.bytes_waiting <= 100
    assert len(dropped) == 8
    assert len(caplog.messages) == 1
    assert "run.max_waiting" in caplog.text
    assert writer.problems == ["the disk did not take these in time, and they are lost: windows (8 times)"]
    assert writer.end(time.monotonic()) == ["first", "window 8", "window 9", "report"]
    disk.gate.set()
    assert writer.wait(_soon())


def test_one_that_is_larger_than_the_room_is_written_alone() -> None:
    disk, writer = Disk(), FileWriter(Guard(), most=10)

    assert writer.put("large", 1000, lambda: disk.write("large"))

    writer.end(_soon())
    assert disk.written == ["large"]


def test_a_full_disk_that_is_emptied_gets_everything(caplog: pytest.LogCaptureFixture) -> None:
    # given
    disk, writer = Disk(), FileWriter(Guard())
    disk.refuses = True
    for name in "ab":
        writer.put(name, 1, lambda name=name: disk.write(name))  # type: ignore[misc]
    assert not writer.wait(_soon())
    assert writer.unwritten == ["a", "b"]
    # when
    disk.refuses = False
    # then
    assert writer.end(_soon()) == []
    assert disk.written == ["a", "b"]
    assert ["cannot be written" in line for line in caplog.messages] == [True, False]


def test_files_are_written_in_the_order_in_which_they_came_whichever_failed_first() -> None:
    # given: "b" is being tried when "a", which has failed, is called for once more
    disk, writer = Disk(), FileWriter(Guard())
    disk.refuses = True
    tried, go_on = threading.Event(), threading.Event()

    def refused_late() -> None:
        tried.set()
        go_on.wait(20)
        disk.write("b")

    writer.put("a", 1, lambda: disk.write("a"))
    writer.put("b", 1, refused_late)
    assert tried.wait(20)
    waiter = threading.Thread(target=writer.wait, args=(_soon(),))
    waiter.start()
    while not writer._is_hurried:
        time.sleep(0.001)
    go_on.set()
    waiter.join()
    # when
    disk.refuses = False
    # then
    assert writer.end(_soon()) == []
    assert disk.written == ["a", "b"]


def test_an_answer_comes_after_what_was_put_before() -> None:
    disk, writer = Disk(), FileWriter(Guard())
    writer.put("a", 1, lambda: disk.write("a"))

    assert writer.ask(lambda: list(disk.written), _soon()) == ["a"]


def test_an_answer_that_comes_too_late_is_none() -> None:
    disk, writer = Disk(), FileWriter(Guard())
    writer.put("a", 1, disk.hang)

    assert writer.ask(lambda: 1, time.monotonic()) is None

    disk.gate.set()
    assert writer.end(_soon()) == []


def test_another_error_is_a_problem_and_nothing_more() -> None:
    disk, guard = Disk(), Guard()
    writer = FileWriter(guard)
    writer.put("a", 1, lambda: [][1])
    writer.put("b", 1, lambda: disk.write("b"))

    assert writer.end(_soon()) == []
    assert disk.written == ["b"]
    assert "IndexError" in guard.problems[0]
