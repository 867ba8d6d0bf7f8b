"""Writes a run's files in a daemon thread, in order and bounded in bytes, so that training never waits for a disk."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from tbmem.present.lines import get_logger
from tbmem.runtime.process.disk_notice import DiskNotice, FolderTaken
from tbmem.runtime.process.guard import WRITING, Guard
from tbmem.units import format_bytes

R = TypeVar("R")

MOST_BYTES = 256 << 20
"""Bytes that may wait for the disk by default."""
_RETRY_SECONDS = 15.0
"""Time after which files that could not be written are tried again: a full disk may be emptied."""


@dataclass(slots=True, eq=False)
class _Job:
    """A file, or several, to be written."""

    name: str
    size: int
    call: Callable[[], object]
    must: bool = False
    is_file: bool = True
    group: str = ""
    dropped: Callable[[], object] | None = None
    number: int = 0  # of files, in the order in which they came


class FileWriter:
    """Calls functions that write files, one after the other, in a thread that lives while there are some.

    One that fails with an OSError waits in memory and is tried again, now and then and at the end of the run. When more
    than ``most`` bytes wait, the oldest are dropped, those that must be written last; which is said once.

    Args:
        guard: Hears of errors that another attempt does not mend.
        notice: Tells the console of those that it may.
        most: Bytes that may wait.
    """

    def __init__(self, guard: Guard, notice: DiskNotice | None = None, most: int = MOST_BYTES) -> None:
        self._guard = guard
        self._notice = notice or DiskNotice()
        self._most = most
        self._waiting: deque[_Job] = deque()
        self._failed: deque[_Job] = deque()
        self._current: _Job | None = None
        self._changed = threading.Condition()  # of a re-entrant lock: a signal's handler may wait here, too
        self._thread: threading.Thread | None = None
        self._is_hurried = self._has_warned = False
        self._dropped: Counter[str] = Counter()
        self._retry_at = 0.0
        self._numbers = count()

    @property
    def bytes_waiting(self) -> int:
        """Bytes of all that is not written yet."""
        with self._changed:
            return sum(job.size for job in self._unwritten())

    @property
    def is_full(self) -> bool:
        """Whether the disk is so far behind that more would be dropped."""
        return self.bytes_waiting >= self._most

    @property
    def unwritten(self) -> list[str]:
        """Names of all that is not written yet, in the order in which it came."""
        with self._changed:
            return [job.name for job in sorted(self._unwritten(), key=lambda job: job.number)]

    @property
    def problems(self) -> list[str]:
        """What was dropped so far, as lines for the run's summary."""
        counts = ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in self._dropped.items())
        return [f"the disk did not take these in time, and they are lost: {counts}"] if counts else []

    def put(
        self,
        name: str,
        size: int,
        call: Callable[[], object],
        *,
        must: bool = False,
        group: str = "",
        dropped: Callable[[], object] | None = None,
    ) -> bool:
        """Have ``call`` write ``size`` bytes; never waits.

        Args:
            name: What people call it.
            size: Bytes of memory that it takes until then.
            call: Writes it; may raise OSError, and is then called again.
            must: Dropped only when there is nothing else.
            group: Stands for the name where the dropped ones are counted.
            dropped: Called if it will not be written.

        Returns:
            Whether there is room for it.
        """
        with self._changed:
            job = _Job(name, size, call, must, group=group or name, dropped=dropped, number=next(self._numbers))
            dropped_jobs = self._make_room(job)
            self._dropped.update(each.group for each in dropped_jobs)
            is_taken = all(each is not job for each in dropped_jobs)
            if is_taken:
                self._waiting.append(job)
                self._start()
            self._changed.notify_all()
        _drop(dropped_jobs)
        if dropped_jobs and not self._has_warned:
            self._has_warned = True
            get_logger().warning(
                "the disk does not keep up: more than %s wait to be written (run.max_waiting), so %s is left out;"
                " what else is left out is counted in the summary; training goes on",
                *(format_bytes(self._most), dropped_jobs[0].name),
            )
        return is_taken

    def ask(self, call: Callable[[], R], deadline: float) -> R | None:
        """The answer of a function that reads what was written before; ``None`` if it comes too late."""
        answers: list[R] = []
        with self._changed:
            self._waiting.append(_Job("a look at the files", 0, lambda: answers.append(call()), is_file=False))
            self._start()
        self.wait(deadline)
        return answers[0] if answers else None

    def wait(self, deadline: float) -> bool:
        """Wait until all is written, at most until ``deadline`` (``time.monotonic``); whether it is.

        What has failed before is tried once more.
        """
        is_done = self._finish(deadline)
        with self._changed:
            if self._failed:
                self._start()  # and tries again later
        return is_done

    def end(self, deadline: float) -> list[str]:
        """Wait as ``wait`` does, then give up; the names of what was not written."""
        self._finish(deadline)
        with self._changed:
            left = self.unwritten
            given_up = [*self._failed, *self._waiting]
            self._waiting.clear()
            self._failed.clear()
        _drop(given_up)
        return left

    def _finish(self, deadline: float) -> bool:
        with self._changed:
            # in the order in which they came: one that failed while others were tried again is behind them
            self._waiting.extendleft(sorted(self._failed, key=lambda job: -job.number))
            self._failed.clear()
            if self._waiting:
                self._start()
            self._is_hurried = True
            self._changed.notify_all()
            thread = self._thread
            while self._thread is not None and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._is_hurried = False
        if thread is not None and self._thread is None:
            thread.join()  # it has nothing to do any more
        return not self.unwritten

    def _unwritten(self) -> list[_Job]:
        current = [self._current] if self._current is not None else []
        return [job for job in (*current, *self._failed, *self._waiting) if job.is_file]

    def _make_room(self, new: _Job) -> list[_Job]:
        """Drop the oldest that wait until a new one fits; one alone is always taken."""
        others = self._unwritten()
        over = sum(job.size for job in others) + new.size - self._most
        dropped: list[_Job] = []
        for queue in (self._failed, self._waiting):
            for job in [job for job in queue if job.is_file and not job.must]:
                if over <= 0:
                    break
                queue.remove(job)
                dropped.append(job)
                over -= job.size
        if over > 0 and not new.must and len(dropped) < len(others):
            dropped.append(new)
        return dropped

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tbmem files", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no room for its stack, as near the limit of ulimit -v
                self._thread = None
                self._write_here()

    def _write_here(self) -> None:
        """Try once, in this thread, what waits: it is not to wait for a disk that refuses."""
        waiting, self._waiting = self._waiting, deque()
        self._failed += [job for job in waiting if not self._is_written(job)]

    def _work(self) -> None:
        while (job := self._take()) is not None:
            if sys.getprofile() is not None:
                sys.setprofile(None)  # torch's profiler would show this thread's calls, as in ``BackgroundWriter``
            is_written = self._is_written(job)
            with self._changed:
                self._current = None
                if not is_written:
                    self._failed.append(job)
                    self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _take(self) -> _Job | None:
        """The next job; ``None`` if there is nothing to do any more."""
        with self._changed:
            while not self._waiting and self._failed and not self._is_hurried:
                left = self._retry_at - time.monotonic()
                if left <= 0:
                    self._waiting.append(self._failed.popleft())
                else:
                    self._changed.wait(left)
            if self._waiting:
                self._current = self._waiting.popleft()
                return self._current
            self._thread = None
            self._changed.notify_all()
            return None

    def _is_written(self, job: _Job) -> bool:
        try:
            job.call()
        except FolderTaken as error:
            self._dropped[job.group] += 1
            self._notice.told(f"{job.name} is not written: {error}")
        except OSError as error:
            self._notice.refused(job.name, error)
            return False
        except Exception as error:
            self._guard.fail(f"{WRITING} ({job.name})", error)
        else:
            if job.is_file:
                self._notice.recovered(f"{job.name} is written now")
        return True


def _drop(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        if job.dropped is not None:
            job.dropped()
