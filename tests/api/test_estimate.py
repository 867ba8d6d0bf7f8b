"""tbmem.estimate: typed options that are the command's, modules and functions, and the command's own JSON."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tbmem
from tbmem.api.estimate import estimate
from tbmem.errors import UsageError
from tbmem.estimator import estimate as engine
from tbmem.model.job import Job, job_options
from tbmem.units import GIB
from tests.cli.conftest import Run, run
from tests.conftest import PROJECT
from tests.estimator.test_estimate import execute

__all__ = ["run"]


def layers(batch: int = 8) -> Any:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)])
    return model, torch.zeros(batch, 256), lambda output, batch: output.square().mean()


def test_options_are_those_of_the_command_with_the_same_defaults() -> None:
    parameters = inspect.signature(estimate).parameters

    assert set(job_options()) <= set(parameters)
    defaults = {name: parameters[name].default for name in job_options() if name != "batch"}
    job = Job.of("gpt2")
    assert Job.of("gpt2", **defaults) == job


def test_the_command_prints_what_is_returned(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "simulate_jobs", execute)

    result = estimate("gpt2", 80, gpu=["a100-40gb", "h200"])
    text = run("estimate", "gpt2", "--batch", 80, "--gpu", "a100-40gb,h200")
    as_json = run("estimate", "gpt2", "--batch", 80, "--gpu", "a100-40gb,h200", "--json")

    view = json.loads(as_json.out)
    here = json.loads(result.to_json())
    for each in (view, here):
        del each["job"]["search_path"]  # the folder in which the command runs
    assert view == here
    assert text.out == f"{result}\n"
    assert (text.code, as_json.code, result.fits) == (1, 1, False)


def test_the_short_form_says_peak_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "simulate_jobs", execute)

    result = estimate("gpt2", 8, gpu=["h100", "t4"])

    assert isinstance(result, tbmem.Estimate)
    assert repr(result).splitlines() == [
        "Estimate of gpt2 on h100-80gb: peak 18.00 GiB allocated, 18.00 GiB reserved (expected 17.82 to 18.54 GiB)",
        "  It fits: 18.54 GiB of 79.10 GiB, 60.56 GiB are left.",
        "  Other GPUs: t4-16gb does not fit",
    ]
    assert result.peak_reserved == 18 * GIB
    assert result.alternatives == ()


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "simulate_jobs", execute)

    result = estimate("gpt2", gpu="h100", out=tmp_path)

    assert sorted(result.files) == sorted(map(str, tmp_path.iterdir()))
    assert f"wrote {result.files[0]}" in str(result)


@pytest.mark.slow
def test_a_function_a_module_and_a_name_give_the_same() -> None:
    # given one model, as a name, as a function, and as a module with its batch
    model, batch, loss = layers(16)
    options: dict[str, Any] = {"gpu": "t4", "alternatives": False}

    named = estimate("tests.api.test_estimate:layers", 16, **options)
    called = estimate(layers, 16, **options)
    given = estimate(model, batch, loss=loss, **options)
    written = estimate(str(PROJECT / "tests/api/test_estimate.py:layers"), 16, **options)

    # then all figures are the same
    for other in (called, given, written):
        assert _figures(other) == _figures(named)
    assert (given.job.model, given.job.batch, given.job.given) == ("Sequential", 16, None)
    assert called.job.model == "layers"


def _figures(result: tbmem.Estimate) -> dict[str, Any]:
    return {name: value for name, value in result.to_dict().items() if name not in ("job", "notes")}


@pytest.mark.slow
def test_a_module_has_alternatives_with_other_batches_and_an_optimizer_of_ones_own() -> None:
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    result = estimate(
        model,
        {"input": torch.randn(64, 1024)},
        loss=lambda output, batch: output.sum(),
        optimizer=optimizer,
        gpu="t4",
        alternatives=True,
    )

    assert result.by_category["optimizer_state"] == sum(parameter.nbytes for parameter in model.parameters())
    assert any(other.batch > 64 and "were not tried" in other.change for other in result.alternatives)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((nn.Linear(1, 1),), {}, "Linear: say what it is called with"),
        ((nn.Linear(1, 1), 8), {}, "Linear: say what it is called with"),
        (("gpt2", "t4"), {}, "batch is of type str"),
        ((lambda: None, 8), {}, "has no parameter batch, so a batch of 8 cannot reach it"),
        (("gpt2",), {"loss": len}, "gpt2: loss, step and an optimizer of one's own"),
        ((3,), {}, "model is of type int"),
        (("gpt2",), {"tp": 0, "world_size": 1}, "tp is 0"),
        (("gpt2",), {"gpu": []}, "no GPU is named"),
        (("gpt2",), {"variants": True}, "say where by out DIR"),
    ],
)
def test_wrong_input_is_an_error_of_one_line(arguments: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        estimate(*arguments, **options)

    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
