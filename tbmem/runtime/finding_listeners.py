"""Calls the user's functions, and those of installed packages, with each finding."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from typing import Any

from tbmem.errors import UsageError, described
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import LogRecord
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.worker import Worker

Listener = Callable[[Finding], object]
GROUP = "tbmem.on_finding"
"""Entry points by which a package adds a listener of its own."""
_JOIN_SECONDS = 5.0
"""Maximum time that the end of a run waits for listeners: a web server may not answer."""
_MOST_FAILURES = 3
"""Failures running after which a listener is switched off."""
_WAITING = 100
"""Findings that may wait; of more the oldest are left out."""


def listeners_of(on_finding: Listener | Sequence[Listener]) -> tuple[Listener, ...]:
    """The functions that a user gave, one or several; UsageError for what cannot be called."""
    given: Any = on_finding
    is_one = callable(given) or isinstance(given, str) or not isinstance(given, Iterable)
    listeners = (given,) if is_one else tuple(given)
    for listener in listeners:
        if not callable(listener):
            raise UsageError(
                f"on_finding is {listener!r}; give a function that is called with each Finding, or several"
            )
        if not _takes_one(listener):
            raise UsageError(f"on_finding is {listener!r}, which cannot be called with one Finding: add a parameter")
    return listeners


def _takes_one(listener: Listener) -> bool:
    """Whether a function can be called with one argument; of some that are written in C that is not known."""
    try:
        inspect.signature(listener).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class FindingListeners:
    """A sink that passes findings on, in a thread of its own: what a listener does may take any time.

    A listener that raises is logged and called again with the next finding, since a web server may be away for a while;
    it is switched off when it has failed three times running. Suspicions and what they turn out to be are left out, as
    they are on the console.
    """

    part = "on_finding"

    def __init__(self, listeners: Iterable[Listener], guard: Guard) -> None:
        self._listeners = list(listeners)
        self._failures: Counter[Listener] = Counter()  # of each, running
        self._guard = guard
        self._has_loaded = False
        self._written = self._heard = 0  # each by one thread
        self._worker: Worker[Finding] = Worker("tbmem on_finding", self._work, _WAITING)

    def write(self, records: Sequence[LogRecord]) -> None:
        """Queue the findings among some records."""
        findings = [record for record in records if isinstance(record, Finding) and not record.kind.is_quiet]
        self._written += len(findings)
        self._worker.put(findings)

    def close(self) -> None:
        """Wait for the listeners, but not for ever."""
        self._worker.end()
        if not self._worker.join(_JOIN_SECONDS):
            left = self._written - self._heard
            words = f"{left} findings were" if left > 1 else "a finding was"
            seconds = f"{_JOIN_SECONDS:g} s"
            self._guard.note(f"on_finding: {words} not passed on in whole within {seconds} of the end of the run")

    def _work(self, findings: Sequence[Finding]) -> None:
        if not self._has_loaded:
            # not before the first finding: reading the metadata of all packages takes some 20 ms
            self._has_loaded = True
            self._listeners += self._guard.run(self.part, _installed) or ()
        for finding in findings:
            for listener in list(self._listeners):
                self._call(listener, finding)
            self._heard += 1

    def _call(self, listener: Listener, finding: Finding) -> None:
        try:
            listener(finding)
        except BaseException as error:  # SystemExit as well: it would end this thread, and with it the other listeners
            self._failed(listener, finding, error)
        else:
            self._failures[listener] = 0

    def _failed(self, listener: Listener, finding: Finding, error: BaseException) -> None:
        name = f"on_finding {getattr(listener, '__qualname__', listener)!s}"
        self._failures[listener] += 1
        if self._failures[listener] >= _MOST_FAILURES:
            self._listeners.remove(listener)
            self._guard.switch_off(name, error)
        else:
            what = f"{name} failed for {finding.label} at step {finding.last_step}"
            self._guard.note(f"{what}: {described(error)}")


def _installed() -> list[Listener]:
    """The listeners of installed packages."""
    return [entry.load() for entry in entry_points(group=GROUP)]
