"""Why a job cannot be estimated is one line, and names the way that remains."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import pytest
import torch

from tbmem.errors import UsageError
from tbmem.estimator.refusals import REHEARSE, explain
from tbmem.model.job import Job

JOB = Job(model="train.py:make")


def raised_in(file: str, message: str, function: str = "forward") -> BaseException:
    """An error that a function of this file raised, called by train.py."""
    code = f"def {function}():\n    raise RuntimeError({message!r})\n"
    there: dict[str, object] = {}
    exec(compile(code, file, "exec"), there)
    try:
        exec(compile(f"{function}()", "/home/me/train.py", "exec"), there)
    except RuntimeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("/venv/lib/python3.11/site-packages/transformers/trainer.py", "transformers' Trainer has a loop"),
        ("/venv/lib/python3.11/site-packages/lightning/pytorch/trainer/trainer.py", "Lightning's Trainer has a loop"),
        ("/venv/lib/python3.11/site-packages/bitsandbytes/functional.py", "the kernels of bitsandbytes need a GPU"),
        ("/venv/lib/python3.11/site-packages/torchvision/models/detection/rpn.py", "as many boxes as they find"),
    ],
)
def test_libraries_that_an_estimate_cannot_run_are_named(file: str, words: str) -> None:
    line = explain(JOB, raised_in(file, "whatever\nit was"))

    assert words in line
    assert line.endswith(f", or {REHEARSE}")
    assert "\n" not in line


def test_a_division_over_ranks_is_the_users_only_if_the_user_called_it() -> None:
    file = "/venv/lib/python3.11/site-packages/torch/distributed/fsdp/_fully_shard/_fully_shard.py"

    by_user = explain(JOB, raised_in(file, "no group", "fully_shard"))
    of_torch = explain(JOB, raised_in(file, "no group", "forward"))

    assert "the factory divides the model over ranks itself (fully_shard)" in by_user
    assert of_torch == "--model train.py:make: train.py:1: RuntimeError: no group"


def test_operands_that_do_not_fit_ask_for_the_batch() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.nn.Linear(10, 10)(torch.ones(4, 7))

    line = explain(JOB, raised.value)

    assert line.endswith("; is the batch of the shape that the model takes?")


def test_an_error_of_tbmem_is_its_own_line() -> None:
    assert explain(JOB, UsageError("say --seq")) == "say --seq"


def test_a_line_of_the_standard_library_is_not_the_users() -> None:
    error = ValueError("no")
    error.__traceback__ = _traceback(lambda: Path("a").joinpath(3))  # type: ignore[arg-type]

    assert explain(JOB, error).startswith("--model train.py:make: test_refusals.py:")


def _traceback(function: object) -> TracebackType | None:
    try:
        function()  # type: ignore[operator]
    except TypeError as error:
        return error.__traceback__
    return None
