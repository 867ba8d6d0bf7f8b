"""The program's exceptions inside of tbmem's code: told apart from tbmem's own errors, and raised."""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tbmem.interruption import _OURS, SuppressedErrors, completed, interruption_in, raise_interruption


class Timeout(Exception):
    """An exception class of the user's."""


def _our_code(source: str, **names: Any) -> Callable[..., None]:
    """A function of tbmem's, as far as its file tells."""
    space: dict[str, Any] = dict(names)
    exec(compile(source, f"{_OURS}made_up.py", "exec"), space)
    function: Callable[..., None] = space["run"]
    return function


def _caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def _with_arguments(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("too slow")


def _without_their_names(*_: object) -> None:
    raise_deeper()


def raise_deeper() -> None:
    raise TimeoutError


def _that_forgets(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise RuntimeError("time is over")


class _Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise Timeout

    def method(self, number: int, frame: FrameType | None) -> None:
        raise Timeout("method")


HANDLERS = {
    "function": _with_arguments,
    "rest arguments": _without_their_names,
    "arguments that are deleted": _that_forgets,
    "object": _Handler(),
    "method": _Handler().method,
    "partial": functools.partial(lambda _, number, frame: raise_deeper(), 1),
    "Python's own": signal.default_int_handler,
}


@pytest.fixture
def signalled() -> Iterator[Callable[[Any], BaseException]]:
    """Raises a handler's exception inside of code of tbmem's."""
    before = signal.getsignal(signal.SIGUSR1)

    def raised(handler: Any) -> BaseException:
        signal.signal(signal.SIGUSR1, handler)
        return _caught(_our_code("def run(): send(number)\n", send=signal.raise_signal, number=signal.SIGUSR1))

    yield raised
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_what_a_signal_handler_raises_is_the_program_s(handler: Any, signalled: Callable[[Any], BaseException]) -> None:
    error = signalled(handler)
    assert interruption_in(error) is error


def test_an_error_raised_while_that_passes_does_not_hide_it(signalled: Callable[[Any], BaseException]) -> None:
    # given an own error in the handling of the program's exception
    interruption = signalled(_with_arguments)
    error = OSError("disk full")
    error.__context__ = interruption
    # when / then
    assert interruption_in(error) is interruption
    with pytest.raises(TimeoutError):
        raise_interruption(error)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_an_error_of_a_library_that_tbmem_called_does_not_hide_it(
    handler: Any, signalled: Callable[[Any], BaseException]
) -> None:
    # given a library whose handling fails, as threading.Thread.start() with a thread that has begun by then
    def start() -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except BaseException:
            {}.pop("thread")

    signal.signal(signal.SIGUSR1, handler)
    # when
    error = _caught(_our_code("def run(): start()", start=start))
    # then
    assert isinstance(error, KeyError)
    assert interruption_in(error) is error.__context__


def test_nor_does_an_own_error_in_the_handling_of_that(signalled: Callable[[Any], BaseException]) -> None:
    # given a library that hides it, and code of tbmem's that fails in turn
    def start() -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except BaseException:
            {}.pop("thread")

    signal.signal(signal.SIGUSR1, _with_arguments)
    source = "def run():\n try: start()\n except KeyError: raise OSError('disk full')"
    # when
    error = _caught(_our_code(source, start=start))
    # then
    assert isinstance(error, OSError)
    assert isinstance(interruption_in(error), TimeoutError)


@pytest.mark.parametrize("kind", [Timeout, TimeoutError, RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_that_another_thread_has_set_is_the_program_s(kind: type[BaseException]) -> None:
    # given code of tbmem's that runs
    thread, is_running = threading.get_ident(), threading.Event()
    turns: list[None] = []

    def interrupt() -> None:
        is_running.wait()
        while not turns:
            pass
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))

    # when
    other = threading.Thread(target=interrupt)
    other.start()
    is_running.set()
    error = _caught(functools.partial(_our_code("def run(append):\n  while True: append(None)\n"), turns.append))
    other.join()
    # then
    assert type(error) is kind
    assert interruption_in(error) is error


def test_a_debugger_that_quits_is_the_program_s() -> None:
    # given a trace function that raises in tbmem's code
    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename.startswith(f"{_OURS}made_up"):
            raise Timeout
        return None

    ours, before = _our_code("def run(): pass\n"), sys.gettrace()
    sys.settrace(trace)
    try:
        error = _caught(ours)
    finally:
        sys.settrace(before)
    # when / then
    assert interruption_in(error) is error


@pytest.mark.parametrize(
    "source",
    [
        "def run(): raise ValueError('x')",
        "def run(): raise TimeoutError",
        "def run(): int('x')",
        "def run(): open('/nowhere/at/all')",
        "def run(): next(iter(()))",
        "def run(): assert not 1",
        "def run(): call()",
        "def run():\n  try: call()\n  finally: pass",
        "def run():\n  try: call()\n  except TimeoutError: raise",
        "def run(): list(map(call_with, [1]))",
    ],
)
def test_an_error_of_tbmem_s_own_is_none_of_these(source: str) -> None:
    error = _caught(_our_code(source, call=raise_deeper, call_with=lambda _: raise_deeper()))
    assert interruption_in(error) is None
    raise_interruption(error)


def test_an_exception_that_the_program_handles_meanwhile_is_not_raised_again(
    signalled: Callable[[Any], BaseException],
) -> None:
    # given a loop that goes on after a timeout of its own, in its own code
    def timeout_in_the_loop() -> None:
        signal.raise_signal(signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, _with_arguments)
    # when an error of tbmem's comes while it is handled
    try:
        timeout_in_the_loop()
    except TimeoutError:
        error = _caught(_our_code("def run(): raise ValueError('x')"))
    # then
    assert error.__context__ is not None
    assert interruption_in(error) is None


def test_what_is_interrupted_is_completed_before_the_exception_passes(
    signalled: Callable[[Any], BaseException],
) -> None:
    # given a file that is written, with an interruption in the middle
    written: list[str] = []
    signal.signal(signal.SIGUSR1, _with_arguments)

    def write() -> None:
        written.append("begin")
        if len(written) == 1:
            _our_code("def run(): send(number)\n", send=signal.raise_signal, number=signal.SIGUSR1)()
        written.append("end")

    # when / then
    with pytest.raises(TimeoutError):
        completed(write)
    assert written == ["begin", "begin", "end"]


def test_an_own_error_is_not_tried_twice() -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        completed(fails)
    assert calls == [1]


def test_an_own_error_is_suppressed_and_an_exception_of_the_program_passes() -> None:
    # given a handler of the program's
    signal.signal(signal.SIGUSR1, _with_arguments)
    # when / then
    with SuppressedErrors():
        _our_code("def run(): raise ValueError('x')")()
    with pytest.raises(TimeoutError), SuppressedErrors():
        _our_code("def run(): send(number)\n", send=signal.raise_signal, number=signal.SIGUSR1)()
