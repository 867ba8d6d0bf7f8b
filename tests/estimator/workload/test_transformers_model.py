"""A config file is the model that transformers makes of it: in its class, its type and its bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.errors import UsageError
from tbmem.estimator.fake_tensors.fake_cuda import FakeMode
from tbmem.estimator.worker import simulate_jobs
from tbmem.estimator.workload.transformers_model import hub_config
from tbmem.estimator.workload.workload import Workload, make_workload
from tbmem.model.category import Category
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.conftest import PROJECT
from tests.estimator.peaks import peak

pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")

SMALL = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 32},
}
T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 96, "vocab_size": 50}
VIT = {"model_type": "vit", **SMALL, "architectures": ["ViTForImageClassification"], "image_size": 32, "patch_size": 8}


def written(folder: Path, config: Mapping[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def subject_of(config: Mapping[str, Any], folder: Path, mode: FakeMode | None = None, **job: Any) -> Workload:
    with mode or FakeMode():
        return make_workload(Job(model=written(folder, config), **job))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "gpt2"}, "GPT2LMHeadModel"),
        ({"model_type": "llama"}, "LlamaForCausalLM"),
        (
            {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]},
            "LlamaForSequenceClassification",
        ),
        ({"model_type": "bert"}, "BertForMaskedLM"),
        ({"model_type": "bert", "architectures": ["BertForTokenClassification"]}, "BertForTokenClassification"),
        ({"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}, "BertForQuestionAnswering"),
        (T5, "T5ForConditionalGeneration"),
        # code beside the config is not run where transformers has its own
        ({"model_type": "llama", "auto_map": {"AutoModelForCausalLM": "x.Y"}}, "LlamaForCausalLM"),
    ],
)
def test_the_class_is_that_of_the_config_and_has_a_loss(config: Mapping[str, Any], name: str, tmp_path: Path) -> None:
    mode = FakeMode()
    given = {**SMALL, "n_embd": 64, "n_head": 4, "n_layer": 2, **config}

    workload = subject_of(given, tmp_path, mode, batch=3, sequence=8)
    with mode:
        loss = workload.loss(workload.model, workload.batch)

    assert type(workload.model).__name__ == name
    assert workload.architecture.startswith(f"{name} of transformers ")
    assert loss.shape == ()
    assert all(len(tensor) == 3 for tensor in workload.batch.values())


@pytest.mark.parametrize(
    ("said", "asked", "dtype"),
    [
        ({}, None, torch.float32),
        ({"torch_dtype": "bfloat16"}, None, torch.bfloat16),
        ({"dtype": "float16"}, None, torch.float16),
        ({"torch_dtype": None}, None, torch.float32),
        ({"torch_dtype": "bfloat16"}, "float32", torch.float32),
    ],
)
def test_the_type_is_the_configs_unless_another_is_asked_for(
    said: dict[str, Any], asked: str | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    workload = subject_of({**SMALL, "model_type": "llama", **said}, tmp_path, dtype=asked)

    assert {parameter.dtype for parameter in workload.model.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("config", "job", "reason"),
    [
        ({"model_type": "nobodys"}, {}, "has no nobodys models; write a factory"),
        ({"model_type": "nobodys", "auto_map": {"AutoModel": "x.Y"}}, {}, r"\(auto_map\) and is not run"),
        ({"model_type": "llama", "architectures": ["MyLlama"]}, {}, "has no class MyLlama"),
        ({"model_type": "llama", "hidden_size": "64"}, {}, "cannot build it: .*'hidden_size'|cannot build it: "),
        ({"model_type": "llama", "num_hidden_layers": 1 << 31}, {}, "2147483648 layers; at most 1000 are built"),
        ({"model_type": "llama", "num_hidden_layers": "1e5"}, {}, "1e5 layers; at most 1000 are built"),
        ({"model_type": "llama", "intermediate_size": 1 << 63}, {}, "intermediate_size: 9223372036854775808 is beyond"),
        ({"model_type": "llama", "torch_dtype": "int8"}, {}, "its dtype is 'int8'; say --dtype"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, {}, "BertModel has no loss of its own"),
        ({"model_type": "bert"}, {"sequence": 33}, "--seq 33: .* has learnt positions for 32 tokens only"),
        ({**T5, "max_position_embeddings": None}, {"sequence": None}, "say --seq"),
        ({"model_type": "resnet"}, {"sequence": None}, "it has no image_size"),
        ({"model_type": "wav2vec2"}, {}, "Wav2Vec2Model takes input_values, whose size the config does not say"),
        ({"model_type": "clip"}, {}, "does not learn from tokens or images|takes images or sound"),
    ],
)
def test_what_cannot_be_built_is_one_line(
    config: dict[str, Any], job: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        subject_of({**SMALL, **config}, tmp_path, **{"sequence": 8, **job})

    assert "\n" not in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_no_config(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")

    with pytest.raises(UsageError, match="a named pipe, where a file is expected"):
        make_workload(Job(model=str(tmp_path / "config.json")))


def test_images_are_as_large_as_the_config_says_and_have_no_tokens(tmp_path: Path) -> None:
    vit = written(tmp_path, VIT)

    made, refused, alone = simulate_jobs(
        [Job(model=vit, batch=3), Job(model=vit, sequence=8), Job(model=vit, tensor=2, world_size=2)]
    )

    assert isinstance(made, SimulatedRun)
    assert made.about["architecture"].startswith("ViTForImageClassification of transformers ")
    assert 4 * 3 * 3 * 32 * 32 in made.size
    assert "a model of images" in str(refused)
    assert "--tp divides the built-in decoders only" in str(alone)


def test_ranks_share_its_layers_and_a_type_that_is_asked_for_halves_them(tmp_path: Path) -> None:
    # given a model of which all comes out even over four ranks
    path = written(tmp_path, {**SMALL, "model_type": "llama", "hidden_size": 128, "vocab_size": 64})
    job = Job(model=path, batch=4, sequence=32)

    whole, shared, typed = simulate_jobs([job, replace(job, fsdp=4, world_size=4), replace(job, dtype="bfloat16")])

    # then a rank keeps a quarter of it
    assert parameters(shared) * 4 == parameters(whole)
    assert parameters(typed) * 2 == parameters(whole)


def parameters(run: Any) -> int:
    return int(run.size[run.category == Category.PARAMETER].sum())


def test_inference_computes_no_loss_and_takes_a_model_without_one(tmp_path: Path) -> None:
    config = {**SMALL, "model_type": "bert", "architectures": ["BertModel"]}

    workload = subject_of(config, tmp_path, inference=True)

    assert set(workload.batch) == {"input_ids"}
    assert workload.batch["input_ids"].shape == (1, 32)


def test_roberta_begins_behind_its_padding(tmp_path: Path) -> None:
    workload = subject_of({**SMALL, "model_type": "roberta", "pad_token_id": 1}, tmp_path)

    assert workload.batch["input_ids"].shape == (1, 30)


CASES = {"gpt2": "gpt2", "llama, config in bfloat16": "llama", "llama, checkpointed": "llama"}


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The benchmark of the same name: its configs, and its loop of transformers and torch alone."""
    sys.path.insert(0, str(PROJECT / "benchmarks"))
    try:
        import estimate_configs
    finally:
        sys.path.remove(str(PROJECT / "benchmarks"))
    return estimate_configs


def test_estimates_are_what_transformers_really_takes(benchmark: Any, tmp_path: Path) -> None:
    # given what the CPU's allocator handed out to trainings of transformers' own, one after the other
    command = [sys.executable, benchmark.__file__, "--real", json.dumps([list(CASES), 2, 64])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    real = json.loads(done.stdout.splitlines()[-1])

    # when the same configs are estimated
    jobs = []
    for number, name in enumerate(CASES):
        config, how = benchmark.CASES[name]
        folder = tmp_path / str(number)
        folder.mkdir()
        model = written(folder, benchmark.config_of(config, how))
        checkpoint = how.get("checkpoint", False)
        jobs.append(Job(model=model, batch=2, sequence=64, device="cpu", steps=3, checkpoint=checkpoint))
    runs = simulate_jobs(jobs)

    # then they are the same, within a thousandth
    for truth, run in zip(real, runs, strict=True):
        assert peak(run) == pytest.approx(truth, rel=1e-3)
        is_half = run.about["dtype"] == "bfloat16"
        assert ["throughout; --dtype float32" in note for note in run.notes] == [True] * is_half


def test_a_name_on_the_hub_is_looked_up_in_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")
    hub = pytest.importorskip("transformers.utils.hub")
    # given a cache with the config of one model, and no network
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.json").write_text("{}")

    def cached_file(name: str, file: str) -> str:
        if name != "acme/tiny":
            raise OSError("We couldn't connect\nto the hub")
        return str(tmp_path / file)

    monkeypatch.setattr(hub, "cached_file", cached_file)

    # then it is found, and another one is an error of one line
    assert hub_config("acme/tiny") == tmp_path / "config.json"
    with pytest.raises(UsageError, match=r"acme/none: its config.json .*\(We couldn't connect\)"):
        hub_config("acme/none")
