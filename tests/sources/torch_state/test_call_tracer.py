"""Profile functions of the program beside torch's tracer of Python calls, in this thread and in others."""

from __future__ import annotations

import cProfile
import profile
import pstats
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
import torch

from tbmem.sources.torch_state import call_tracer
from tbmem.sources.torch_state.call_tracer import CallTracer, end_tracing, program_profiles, traces_this_thread

pytestmark = pytest.mark.torch_versions
hides = pytest.mark.skipif(not call_tracer._CAN_HIDE, reason="on this torch its tracer is not hidden")


def _see(frame: FrameType, event: str, argument: object) -> None:
    """Stand in for a profiler of the program's."""


class Recording:
    """torch's profiler with stacks, and what tbmem does around it."""

    def __init__(self) -> None:
        self.tracer = CallTracer()
        self._profile = torch.profiler.profile(with_stack=True)
        self._profile.prepare_trace()
        self._profile.start_trace()
        self.tracer.begin()

    def stop(self) -> None:
        self.tracer.stop(self._profile.stop_trace)


@pytest.fixture
def nobody_profiles() -> Iterator[None]:
    """No profile function before, nor afterwards."""
    before = sys.getprofile()
    sys.setprofile(None)
    functions = sys.getprofile, sys.setprofile
    yield
    sys.setprofile(None)
    assert (sys.getprofile, sys.setprofile) == functions
    sys.setprofile(before)


class Worker:
    """A thread with a profile function of its own."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._is_over, is_set = threading.Event(), threading.Event()

        def run() -> None:
            sys.setprofile(function)
            is_set.set()
            self._is_over.wait()
            sys.setprofile(None)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        is_set.wait()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.mark.usefixtures("nobody_profiles")
def test_the_program_profiles_in_any_thread() -> None:
    assert not program_profiles()
    sys.setprofile(_see)
    assert program_profiles()
    sys.setprofile(None)
    worker = Worker(_see)
    seen = program_profiles()
    worker.end()
    assert seen == sys.platform.startswith("linux")
    assert not program_profiles()


@hides
@pytest.mark.usefixtures("nobody_profiles")
def test_torchs_tracer_is_hidden_from_who_asks() -> None:
    # given a recording with stacks
    recording = Recording()
    assert traces_this_thread()
    # when a tool of the program's gives back at its end what was there at its begin
    before = sys.getprofile()
    sys.setprofile(_see)
    sys.setprofile(before)
    len([])
    # then nothing is raised, and the recording knows that its stacks end there
    assert before is None
    assert recording.tracer.is_cut
    recording.stop()


@hides
@pytest.mark.usefixtures("nobody_profiles")
def test_the_function_that_the_program_has_set_meanwhile_stays() -> None:
    # given
    recording = Recording()
    sys.setprofile(_see)
    # when the recording ends
    recording.stop()
    # then
    assert sys.getprofile() is _see


@hides
@pytest.mark.usefixtures("nobody_profiles")
def test_the_programs_function_sees_as_many_returns_as_calls() -> None:
    # given a tool that follows calls and returns, set while a recording is on
    recording = Recording()
    seen: list[tuple[str, str]] = []

    def follow(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "return"):
            seen.append((event, frame.f_code.co_name))

    sys.setprofile(follow)
    # when the recording ends
    recording.stop()
    sys.setprofile(None)
    # then each call that the tool saw begin has returned
    calls, returns = ([name for event, name in seen if event == kind] for kind in ("call", "return"))
    assert sorted(calls) == sorted(returns)


@hides
@pytest.mark.usefixtures("nobody_profiles")
def test_a_function_without_an_object_begins_again_as_in_a_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a tool in C, of which Python knows no object, that has told ``threading`` how it begins in a thread
    recording = Recording()
    begun: list[str] = []

    def begin(frame: FrameType, event: str, argument: object) -> None:
        begun.append(event)

    monkeypatch.setattr(call_tracer, "_own_function", lambda: call_tracer._ProfileFunction(1, None))
    threading.setprofile(begin)
    sys.setprofile(None)
    # when the recording ends
    recording.stop()
    threading.setprofile(None)  # type: ignore[arg-type]
    sys.setprofile(None)
    # then
    assert "call" in begun


@hides
@pytest.mark.usefixtures("nobody_profiles")
@pytest.mark.parametrize("make", [cProfile.Profile, profile.Profile])
def test_a_profiler_of_pythons_library_sees_its_calls(make: type[profile.Profile]) -> None:
    recording = Recording()
    own = make()
    own.runcall(lambda: [int("1") for _ in range(3)])
    recording.stop()
    assert pstats.Stats(own).total_calls >= 2  # type: ignore[attr-defined]


@hides
@pytest.mark.usefixtures("nobody_profiles")
def test_only_torchs_tracer_is_ended() -> None:
    sys.setprofile(_see)
    end_tracing()
    assert sys.getprofile() is _see
    sys.setprofile(None)
    recording = Recording()
    end_tracing()
    assert not traces_this_thread()
    recording.stop()
