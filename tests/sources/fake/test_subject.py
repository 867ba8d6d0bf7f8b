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


@pytest.mark.parametrize(("config", "parameters"), [(SMALL, 68_160), (QWEN3, 596_049_920)])
def test_parameters_are_the_models(config: Any, parameters: int, tmp_path: Path) -> None:
    model = decoder(config, tmp_path)

    assert model.shape.parameters == sum(one.numel() for one in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "t5"}, "a t5 model is not the usual decoder .gpt2, llama.*write a factory"),
        ({"model_type": None}, "nameless model"),
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


def test_what_is_no_object_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the config.json of a model"):
        decoder([1], tmp_path)
