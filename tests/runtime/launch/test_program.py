"""Which steps of which optimizers are the training's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.utils.checkpoint import checkpoint

from tbmem.config import load_with_origins
from tbmem.model.redaction import Redaction
from tbmem.runtime.launch.program import MonitoredProgram, StepCounter
from tbmem.runtime.launch.script import Program
from tbmem.sources.torch_state.profiler_state import in_backward

Watch = Callable[..., list[str]]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Begins to look; the list it returns grows by a class's name with each training step."""
    opened = []

    def begin(choice: str = "first") -> list[str]:
        counted: list[str] = []
        steps = StepCounter(lambda optimizer: counted.append(type(optimizer).__name__), choice)
        steps.open()
        opened.append(steps)
        return counted

    yield begin
    for steps in opened:
        steps.close()


def _optimizer(kind: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return kind([parameter], lr=0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("choice", "counted"),
    [
        ("first", ["SGD", "SGD", "SGD"]),
        ("2", ["Adam", "Adam", "Adam"]),
        ("Adam", ["Adam", "Adam", "Adam"]),
        ("each", ["SGD", "Adam"] * 3),
        ("LBFGS", []),
    ],
)
def test_a_gans_two_optimizers(choice: str, counted: list[str], watch: Watch) -> None:
    seen = watch(choice)
    first, second = _optimizer(torch.optim.SGD), _optimizer(torch.optim.Adam)

    for _ in range(3):
        first.step()
        second.step()

    assert seen == counted


def test_the_first_steps_less_often_than_the_second(watch: Watch) -> None:
    # given a generator that steps once for five steps of its critic
    seen = watch()
    generator, critic = _optimizer(torch.optim.Adam), _optimizer(torch.optim.SGD)

    for _ in range(30):
        generator.step()
        for _ in range(5):
            critic.step()

    assert seen == ["Adam"] * 30


def test_one_that_is_given_up_is_replaced(watch: Watch) -> None:
    # given a program that changes its optimizer and keeps the old one
    seen = watch()
    old, new = _optimizer(torch.optim.SGD), _optimizer(torch.optim.Adam)
    old.step()

    for _ in range(150):
        new.step()

    # then after a hundred steps of patience the new one counts
    assert seen == ["SGD"] + ["Adam"] * 50


def test_a_choice_that_no_optimizer_meets_is_reported_while_there_is_time(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a class's name with a typing error
    seen = watch("Adm")
    optimizer = _optimizer(torch.optim.Adam)

    for _ in range(300):
        optimizer.step()

    # then it is said once, after ten steps, not only when the training has ended
    assert seen == []
    (warning,) = caplog.messages
    said = "no training step was seen so far: --step-on Adm counts none of the optimizers that stepped (Adam)"
    assert warning == f"{said}; did you mean Adam?"


def test_one_that_is_gone_is_replaced_at_once(watch: Watch) -> None:
    seen = watch()
    old = _optimizer(torch.optim.SGD)
    old.step()
    del old

    new = _optimizer(torch.optim.Adam)
    new.step()

    assert seen == ["SGD", "Adam"]


def test_one_that_steps_inside_of_the_backward_pass_is_told_after_it() -> None:
    # given an optimizer that steps in a gradient's hook, and a checkpoint that calls its module again in backward
    where = []
    steps = StepCounter(lambda optimizer: where.append(in_backward()))
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.weight.register_post_accumulate_grad_hook(lambda _weight: optimizer.step())
    steps.open()

    # when it trains three steps
    told = []
    for _ in range(3):
        checkpoint(model, torch.randn(2, 4), use_reentrant=False).sum().backward()
        told.append(len(where))
    steps.close()

    # then each is told when the next one calls its first module, the last one at the end, and no hook stays
    assert told == [0, 1, 2]
    assert where == [False, False, False]
    assert not _global_forward_pre_hooks


def test_without_modules_a_step_inside_of_the_backward_pass_is_told_by_the_next(watch: Watch) -> None:
    seen = watch()
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    parameter.register_post_accumulate_grad_hook(lambda _parameter: optimizer.step())

    for _ in range(3):
        (parameter * 2).sum().backward()

    assert seen == ["SGD", "SGD"]


def test_what_is_redacted_are_the_program_s_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the command line of `tbmem run`, with the script's name among tbmem's own arguments
    (tmp_path / "train_one.py").write_text("")
    words = [str(tmp_path / "train_one.py"), "--token=hunter2-and-more"]
    monkeypatch.setattr(sys, "argv", ["tbmem", "run", "output.redact=true", "--", *words])
    settings = load_with_origins(None, ["output.redact=true", f"run.logdir={tmp_path}", "profiling.enabled=false"])
    # when
    program = MonitoredProgram(Program.find(words), settings)
    redaction: Redaction = program._run.memory._redaction()
    program._run.end()
    # then
    assert redaction.text("train_one.py:7 hunter2-and-more") == "train_one.py:7 <argument>"
