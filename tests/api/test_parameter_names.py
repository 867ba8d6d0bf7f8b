"""Errors that name Python's parameters."""

from __future__ import annotations

import inspect

import pytest

import tbmem
from tbmem.api.parameter_names import names_parameters
from tbmem.errors import UsageError


@names_parameters
def estimated(model: str, world_size: int = 1) -> str:
    """Estimate."""
    if world_size < 1:
        raise UsageError(f"--world-size {world_size}: {model} needs one, as in --world-size 2 (mpirun --np 2)")
    if world_size > 8:
        raise UsageError("write --model {} where its value belongs")
    return model


def test_an_option_is_a_parameter_and_others_stay() -> None:
    with pytest.raises(UsageError, match=r"^world_size 0: gpt2 needs one, as in world_size 2 \(mpirun --np 2\)$"):
        estimated("gpt2", world_size=0)


def test_an_option_of_the_program_that_is_advised_stays() -> None:
    with pytest.raises(UsageError, match=r"^write --model \{\} where"):
        estimated("gpt2", world_size=16)


def test_the_function_stays_what_it_is() -> None:
    assert estimated("gpt2") == "gpt2"
    assert estimated.__doc__ == "Estimate."
    assert list(inspect.signature(estimated).parameters) == ["model", "world_size"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "nothing.py"}, "model nothing.py: there is no file nothing.py"),
        ({"model": "gpt2", "gpu": "none"}, "gpu none: there are "),
        ({"model": "gpt2", "seq": 4096}, "seq 4096: gpt2 has learnt positions for 1024 tokens only"),
    ],
)
def test_an_estimate_names_no_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        tbmem.estimate(**options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert " --" not in str(caught.value)


def test_a_rehearsal_names_no_options() -> None:
    with pytest.raises(UsageError, match=r"^gpu none: there are .* as in gpu 12GiB$"):
        tbmem.rehearse("train.py", gpu="none")
