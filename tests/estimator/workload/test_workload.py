"""What is wrong with a config file is told in one line, before transformers is asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.errors import UsageError
from tbmem.estimator.workload.workload import make_workload
from tbmem.model.job import Job


def refused(path: Path, **job: Any) -> str:
    with pytest.raises(UsageError) as raised:
        make_workload(Job(model=str(path), **job))
    line = str(raised.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "not the config.json of a model"),
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("{}", "model_type is missing"),
        ('{"model_type": null}', "model_type is missing"),
        ('{"model_type": "llama", "quantization_config": {"bits": 4}}', "quantized weights"),
    ],
)
def test_what_is_no_config_of_a_model(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="latin-1")

    assert reason in refused(path)


def test_an_optimizer_is_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a factory that returns what a training loop has, in the wrong place
    (tmp_path / "factory_of_optimizers.py").write_text(
        "import torch\n\ndef make():\n"
        "    model = torch.nn.Linear(2, 2)\n    return model, torch.optim.SGD(model.parameters())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    # when
    with pytest.raises(UsageError) as raised:
        make_workload(Job(model="factory_of_optimizers:make"))
    # then
    assert "the second value that a factory returns is the batch; this is SGD" in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "config.json")


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    assert "a folder without a config.json" in refused(tmp_path)

    (tmp_path / "config.json").write_text("{}")

    assert f"{tmp_path / 'config.json'}: model_type is missing" in refused(tmp_path)


def test_without_transformers_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given that it is not installed
    monkeypatch.setitem(sys.modules, "transformers", None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2"}))

    # when a config is estimated of which there is a built-in decoder, too
    line = refused(path)

    # then nothing else is built instead
    assert "pip install transformers" in line
    assert "or name a built-in decoder: gpt2 (124 million), " in line


def test_a_loss_that_wants_the_targets_is_told_that_it_gets_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    (tmp_path / "factory_of_pairs.py").write_text(
        "import torch\n"
        "import torch.nn.functional as F\n"
        "def make():\n"
        "    return torch.nn.Linear(4, 3), (torch.ones(2, 4), torch.zeros(2, dtype=torch.long)), loss\n"
        "def loss(output, targets):\n"
        "    return F.cross_entropy(output, targets)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    workload = make_workload(Job(model="factory_of_pairs:make"))
    # when
    with pytest.raises(UsageError) as raised:
        workload.loss(workload.model, workload.batch)
    # then
    assert "the loss is called with the model's output and the whole batch" in str(raised.value)
    assert "F.cross_entropy(output, batch[1])" in str(raised.value)


@pytest.mark.parametrize("loss", ["torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss()"])
def test_a_loss_of_torchs_own_gets_the_targets(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    module = f"factory_with_{'class' if '()' in loss else 'function'}"
    (tmp_path / f"{module}.py").write_text(
        "import torch\n"
        "def make():\n"
        f"    return torch.nn.Linear(4, 3), (torch.ones(2, 4), torch.zeros(2, dtype=torch.long)), {loss}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    workload = make_workload(Job(model=f"{module}:make"))
    # when
    value = workload.loss(workload.model, workload.batch)
    # then
    output = workload.model(workload.batch[0])
    assert torch.equal(value, torch.nn.functional.cross_entropy(output, workload.batch[1]))
