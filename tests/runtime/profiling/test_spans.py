"""Phases and calls of modules are noted while they are wanted, and leave nothing behind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from tbmem.runtime.profiling.spans import ModuleSpans, PhaseSpans


def hooks() -> int:
    return len(torch_module._global_forward_hooks) + len(torch_module._global_forward_pre_hooks)


def test_phases_nest_and_one_within_itself_is_one() -> None:
    phases = PhaseSpans()

    with phases.phase("outer"):
        with phases.phase("inner"), phases.phase("inner"), phases.phase("outer"):
            pass
        with phases.phase("inner"):
            pass

    assert [span.name for span in phases.spans] == ["inner", "inner", "outer"]
    assert all(span.begin_ns <= span.end_ns for span in phases.spans)


def test_a_phase_ends_with_an_exception_and_after_the_recording_it_is_nothing() -> None:
    phases = PhaseSpans()

    with pytest.raises(KeyError), phases.phase("mine"):
        raise KeyError
    phases.is_on = False
    with phases.phase("late"):
        pass

    assert [span.name for span in phases.spans] == ["mine"]


def test_calls_of_modules_by_path_also_after_an_exception_within() -> None:
    # given a model whose second layer fails once
    class Fails(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            raise ValueError("mine")

    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), Fails()))
    before, calls = hooks(), ModuleSpans(model)

    # when it is called with hooks, beside one that is not watched
    calls.begin()
    nn.Linear(2, 2)(torch.zeros(1, 2))
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            model(torch.zeros(1, 2))
    calls.end()
    model[0](torch.zeros(1, 2))

    # then each call that began has ended, and no hook is left
    assert hooks() == before
    assert [span.name for span in calls.spans] == ["0", "1.0", "1.1", "1", ""] * 2
    assert calls.kinds["1.1"] == "Fails"


def test_a_compiled_model_gets_no_hooks() -> None:
    before, calls = hooks(), ModuleSpans(torch.compile(nn.Linear(2, 2), backend="eager"))

    calls.begin()

    assert hooks() == before
    calls.end()


def test_no_module_is_kept_alive() -> None:
    model = nn.Linear(2, 2)
    calls, alive = ModuleSpans(model), weakref.ref(model)
    calls.begin()
    model(torch.zeros(1, 2))

    del model
    gc.collect()

    assert alive() is None
    calls.end()
