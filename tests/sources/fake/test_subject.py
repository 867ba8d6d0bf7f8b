"""Config files of Hugging Face become decoders with as many parameters as the models have, or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.errors import UsageError
from tbmem.model.job import Job
from tbmem.sources.fake.decoder import Decoder
from tbmem.sources.fake.mode import FakeMode
from tbmem.sources.fake.subject import make_subject

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 32,
}
QWEN3 = {
    **{"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28},
    **{"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
    **{"max_position_embeddings": 40960, "tie_word_embeddings": True},
}
"""Its heads are wider than its width divided among them."""


def decoder(config: Any, folder: Path) -> Decoder:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    with torch.device("meta"):
        model = make_subject(Job(model=str(path))).model
    assert isinstance(model, Decoder)
    return model


QWEN2 = {**SMALL, "model_type": "qwen2"}
"""Numbers are added to 64 queries, 32 keys and 32 values in each of two layers."""
MIXTRAL = {**SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
"""Three more feed-forward parts of 3 x 64 x 96 in each layer, and 4 x 64 that choose."""


OLMO2 = {**SMALL, "model_type": "olmo2"}
"""All 64 queries and all 32 keys are normed together, in each of two layers."""


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (SMALL, 68_160),
        (QWEN3, 596_049_920),
        (OLMO2, 68_160 + 2 * 96),
        (QWEN2, 68_160 + 2 * 128),
        (MIXTRAL, 68_160 + 2 * (3 * 3 * 64 * 96 + 4 * 64)),
    ],
)
def test_parameters_are_the_models(config: Any, parameters: int, tmp_path: Path) -> None:
    model = decoder(config, tmp_path)

    assert model.shape.parameters == sum(one.numel() for one in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "nobodys"}, "transformers .*has no nobodys models; write a factory|install transformers"),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": "mixtral"}, "num_local_experts is missing"),
        ({"hidden_size": None}, "hidden_size or n_embd is missing"),
        ({"hidden_size": "64"}, "hidden_size or n_embd is '64'; it must be a whole number above 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers or n_layer is 0"),
        ({"num_attention_heads": 3}, "a width of 64 cannot be divided among 3 heads"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
    ],
)
def test_what_is_wrong_with_a_config_is_one_line(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        decoder({**SMALL, **change}, tmp_path)

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("bert", {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}),
        ("t5", {"d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4, "d_ff": 96}),
        ("gemma2", {**SMALL, "head_dim": 16}),
    ],
)
def test_other_models_are_made_by_transformers(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")
    # given a config of a model that is not the built-in decoder
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**sizes, "model_type": kind, "vocab_size": 50}))

    # when it is built and run
    with FakeMode():
        subject = make_subject(Job(model=str(path), batch=3, sequence=8))
        loss = subject.loss(subject.model, subject.batch)

    # then the model itself says what its loss is
    assert loss.shape == ()
    assert subject.batch["input_ids"].shape == (3, 8)


def test_learnt_positions_end_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SMALL, "model_type": "bert", "max_position_embeddings": 32}))

    with FakeMode(), pytest.raises(UsageError, match="--seq 33: .* has learnt positions for 32 tokens only"):
        make_subject(Job(model=str(path), sequence=33))


@pytest.mark.parametrize("config", [SMALL, QWEN2, MIXTRAL, OLMO2, {**SMALL, "model_type": "qwen3", "head_dim": 16}])
def test_transformers_counts_the_same_parameters(config: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))

    ours = decoder(config, tmp_path)

    assert ours.shape.parameters == sum(one.numel() for one in theirs.parameters())


def test_a_config_without_a_length_asks_for_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "t5", "d_model": 16, "num_layers": 1, "d_ff": 16, "vocab_size": 50}))

    with FakeMode(), pytest.raises(UsageError, match="say --seq"):
        make_subject(Job(model=str(path)))


def test_what_is_no_object_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the config.json of a model"):
        decoder([1], tmp_path)
