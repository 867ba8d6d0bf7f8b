"""Real recordings of tiny loops on the CPU."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tbmem.model.evidence import Site
from tbmem.sources.survivors import profiler_backend, tracker
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
from tbmem.sources.survivors.tracker import SurvivorReport

pytestmark = pytest.mark.torch_versions

WARM_UP = 1
"""Steps after ``begin`` that are not recorded."""


@pytest.fixture(autouse=True)
def no_profile_function_is_left() -> Iterator[None]:
    before = sys.getprofile()
    yield
    assert sys.getprofile() is before
    assert gc.isenabled()


def _watch(step: Callable[[], object], steps: int = 6, births: ProfilerSurvivors | None = None) -> SurvivorReport:
    watched = births or ProfilerSurvivors()
    watched.begin(0)
    for number in range(steps + WARM_UP):
        step()
        watched.mark(number)
    return watched.finish()


def _here(site: Site) -> list[str]:
    return [line.text for line in site.stack if line.file == __file__]


def _sites(report: SurvivorReport) -> tuple[Site, ...]:
    assert report.sites is not None, report.notes
    return report.sites


def test_a_list_that_keeps_a_tensor_of_every_step_is_a_leak() -> None:
    kept = []

    def step() -> None:
        kept.append(torch.zeros(1000))

    report = _watch(step, steps=6)

    (site,) = _sites(report)
    assert (site.generations, site.steps, site.share) == (5, 5, 1)
    assert site.bytes_per_step == 4000
    assert site.operator == "aten::zeros"
    assert _here(site)[0] == "kept.append(torch.zeros(1000))"
    assert site.stack[0].function == f"{test_a_list_that_keeps_a_tensor_of_every_step_is_a_leak.__name__}.<locals>.step"
    assert report.notes == ()
    assert report.seconds > 0


def test_what_is_replaced_is_no_leak() -> None:
    state = {}

    def step() -> None:
        state["h"] = torch.zeros(1000) * 2

    report = _watch(step)

    assert _sites(report) == ()
    assert report.sizes_grow == 0


def test_under_a_curriculum_sizes_grow() -> None:
    layer, state, length = torch.nn.Linear(32, 128), {}, iter(range(100, 1000, 8))

    def step() -> None:
        state["h"] = layer(torch.randn(next(length), 32))

    report = _watch(step)

    assert report.sizes_grow == 1
    assert all(site.growing and site.share == 0 for site in _sites(report))


def test_one_tensor_that_grows_is_found_and_is_no_curriculum() -> None:
    # given two caches that grow on one line, each larger than anything else
    caches = {"keys": torch.zeros(9000), "values": torch.zeros(9000)}

    def step() -> None:
        for name, cache in list(caches.items()):
            caches[name] = torch.cat([cache, torch.zeros(1000)])

    report = _watch(step)

    (site,) = _sites(report)
    assert site.growing
    assert site.share == 0
    assert _here(site)[0].startswith("caches[name] = torch.cat(")
    assert report.sizes_grow == 0


class _KeepsItsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def test_a_function_of_autograd_is_named_with_its_own_line_and_the_line_that_applies_it() -> None:
    weight = torch.randn(50, 50, requires_grad=True)

    def step() -> None:
        out = _KeepsItsOutput.apply(weight)
        out.sum().backward()
        weight.grad = None

    gc.disable()  # or it may break the circle meanwhile
    try:
        report = _watch(step)
    finally:
        gc.enable()

    (site,) = [site for site in _sites(report) if site.bytes_per_step > 100]
    assert _here(site)[:2] == ["y = x * 2", "out = _KeepsItsOutput.apply(weight)"]
    assert site.stack[0].function == "_KeepsItsOutput.forward"
    assert site.share == 1


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_what_is_born_in_backward_is_named_with_the_line_that_called_it() -> None:
    kept = []

    def step() -> None:
        x = torch.randn(30, 30, requires_grad=True)
        y = x.tanh().sum()
        y.backward()
        kept.append(x.grad)

    report = _watch(step)

    (site,) = [site for site in _sites(report) if site.in_backward]
    assert _here(site)[0] == "y.backward()"
    assert site.share == 1


def test_a_loop_in_one_function_has_its_lines_too() -> None:
    # given steps that are turns of a loop, not calls of a function
    kept = []
    births = ProfilerSurvivors()
    births.begin(0)
    for number in range(5):
        x = torch.randn(40, 40)
        first = x * 2
        second = first.relu() + 1
        kept.append(second)
        births.mark(number)
    report = births.finish()

    (site,) = [site for site in _sites(report) if site.bytes_per_step > 100]
    assert site.operator == "aten::add"
    assert _here(site)[0] == "second = first.relu() + 1"


def test_births_of_the_step_that_was_not_marked_as_ended_do_not_count() -> None:
    kept, births = [], ProfilerSurvivors()
    births.begin(0)
    for number in range(4):
        kept.append(torch.zeros(10))
        births.mark(number)
    kept.append(torch.zeros(10))
    report = births.finish()

    (site,) = _sites(report)
    assert (site.generations, site.steps) == (2, 2)


def test_the_training_is_the_same_bit_for_bit() -> None:
    def train(births: ProfilerSurvivors | None) -> tuple[list[float], torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 1))
        optimizer, losses = torch.optim.Adam(model.parameters()), []
        for number in range(12):
            if births is not None and number == 3:
                births.begin(number)
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if births is not None and 3 <= number < 9:
                births.mark(number)
            if births is not None and number == 9:
                assert _sites(births.finish()) is not None
        return losses, torch.get_rng_state()

    losses, state = train(None)
    watched_losses, watched_state = train(ProfilerSurvivors())

    assert losses == watched_losses
    assert torch.equal(state, watched_state)


def _storages() -> int:
    tensors = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
    return len({tensor.untyped_storage()._cdata for tensor in tensors})


def test_nothing_is_kept_alive() -> None:
    state = {}

    def step() -> None:
        state["h"] = (torch.randn(10, 10, requires_grad=True) * 2).sum()
        state["h"].backward()

    step()
    before = _storages()
    births = ProfilerSurvivors()
    _watch(step, births=births)

    assert _storages() == before


def test_a_profiler_of_the_program_is_left_alone() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        report = _watch(lambda: torch.zeros(10))
        torch.ones(10)

    assert report.sites is None
    assert report.notes == ("another torch profiler is active",)
    assert "aten::ones" in {event.name for event in theirs.events()}


def test_a_profiler_in_its_warm_up_is_left_alone() -> None:
    # given a profile that is prepared, which torch itself does not tell
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=9, active=1)) as theirs:
        report = _watch(lambda: torch.zeros(10))
        for _ in range(9):
            theirs.step()
        torch.ones(10)

    assert report.sites is None
    assert "aten::ones" in {event.name for event in theirs.events()}


def test_a_profiler_that_the_program_starts_meanwhile_goes_first() -> None:
    births = ProfilerSurvivors()
    births.begin(0)
    births.mark(0)
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        births.mark(1)
        births.mark(2)
        assert births.is_full
        report = births.finish()
        torch.ones(10)

    assert report.sites is None
    assert report.notes == ("another profiler was started while survivors were recorded",)
    assert "aten::ones" in {event.name for event in theirs.events()}


def test_a_profile_function_of_the_program_is_left_alone() -> None:
    def theirs(*_: object) -> None: ...

    sys.setprofile(theirs)
    try:
        report = _watch(lambda: None)
        found = sys.getprofile()
    finally:
        sys.setprofile(None)

    assert found is theirs
    assert report.sites is None
    assert report.notes == ("a profile function is set (sys.setprofile)",)


def test_other_threads_are_not_watched() -> None:
    reports: list[SurvivorReport] = []
    thread = threading.Thread(target=lambda: reports.append(_watch(lambda: None)))
    thread.start()
    thread.join()

    assert reports[0].sites is None
    assert reports[0].notes == ("survivors are recorded in the main thread only",)


def test_a_window_can_be_abandoned_at_any_moment_and_twice() -> None:
    for marks in range(3):
        births = ProfilerSurvivors()
        births.begin(0)
        for number in range(marks):
            births.mark(number)
        births.abandon()
        births.abandon()
        assert not torch._C._autograd._profiler_enabled()
        assert births.is_full
        assert births.finish().sites in (None, ())


def test_an_error_leaves_nothing_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    births = ProfilerSurvivors()
    births.begin(0)
    births.mark(0)

    def fail(*_: object) -> None:
        raise ValueError("no tree")

    monkeypatch.setattr(profiler_backend.StepEvents, "read", fail)
    with pytest.raises(ValueError, match="no tree"):
        births.mark(1)

    assert not torch._C._autograd._profiler_enabled()


def test_where_a_step_calls_too_many_functions_lines_are_given_up() -> None:
    kept = []

    def no_operation() -> None: ...

    def step() -> None:
        for _ in range(60_000):
            no_operation()
        kept.append(torch.zeros(10))

    births = ProfilerSurvivors()
    births.budget = 1e-3
    report = _watch(step, births=births)

    (site,) = _sites(report)
    assert site.stack == ()
    assert site.share == 1
    assert report.notes == ("a step calls too many Python functions to follow them: lines are not known",)


class _Clock:
    """Each reading takes a quarter of a second, nothing else takes any time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def test_when_reading_has_taken_its_time_the_window_is_full() -> None:
    births = ProfilerSurvivors()
    births.budget, births.clock = 1.0, _Clock()
    births.begin(0)
    marks = 0
    while not births.is_full:
        births.mark(marks)
        marks += 1
    report = births.finish()

    assert tracker.FEWEST_STEPS + WARM_UP <= marks < 9
    assert report.sites == ()


_FORKS = """
import os, sys, torch
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
for marks in (0, 1):
    births = ProfilerSurvivors()
    births.begin(0)
    for number in range(marks):
        births.mark(number)
    child = os.fork()
    if child == 0:
        is_on = torch._C._autograd._profiler_enabled() or sys.getprofile() is not None
        os._exit(1 if is_on else 0)
    assert os.waitpid(child, 0)[1] == 0, "the child still records"
    births.mark(7)
    births.mark(8)
    assert births.finish().sites == ()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_worker_does_not_go_on_recording() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # torch's own log lines are held back as well


LEAKS_OF_TENSORS = ("ctx_output_attribute_gc_off", "forward_hook_feature_list", "state_dict_history")


@pytest.mark.parametrize("name", LEAKS_OF_TENSORS)
def test_leaks_of_the_corpus_have_a_site_in_their_file(corpus: Path, name: str) -> None:
    # given a loop in a file of its own
    path = corpus / "loops" / f"{name}.py"
    scope: dict[str, Any] = {"__name__": name}
    threads = torch.get_num_threads()
    exec(compile(path.read_text(), path, "exec"), scope)
    try:
        step = scope["make"]()
        numbers = iter(range(100))
        report = _watch(lambda: step(next(numbers)))
    finally:
        torch.set_num_threads(threads)
        gc.enable()

    best = _sites(report)[0]
    assert best.share == 1
    assert best.stack[0].file == str(path)
