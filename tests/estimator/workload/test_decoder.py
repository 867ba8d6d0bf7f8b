"""The built-in decoders take the bytes that transformers' models of the same sizes take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tbmem.estimator.worker import simulate_jobs
from tbmem.estimator.workload.decoder import SHAPES, Decoder
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.estimator.peaks import peak

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install --group frameworks"
)

TINY = {
    **{"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 500, "max_position_embeddings": 128},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 500, "n_positions": 128},
    "llama": {"model_type": "llama", **TINY},
}
HOW: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "autocast": {"amp": "bfloat16"},
    "checkpointed": {"amp": "bfloat16", "checkpoint": True},
}
KINDS = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE, Category.ACTIVATION)


@dataclass(frozen=True)
class Bytes:
    """Of a training's last step: the highest sums of each category, and of all."""

    of: dict[Category, int]
    peak: int


def bytes_of(run: SimulatedRun | Exception) -> Bytes:
    assert isinstance(run, SimulatedRun), run
    last = (run.step == run.step.max()) | (run.phase == Phase.SETUP) | (run.category == Category.OPTIMIZER_STATE)

    def highest(category: Category) -> int:
        which = last & (run.category == category)
        change = np.zeros(max(run.alloc_event.max(), run.free_event.max()) + 1, dtype=np.int64)
        np.add.at(change, run.alloc_event[which], run.size[which])
        ended = which & (run.free_event >= 0)
        np.add.at(change, run.free_event[ended], -run.size[ended])
        return int(change.cumsum().max())

    return Bytes({category: highest(category) for category in KINDS}, peak(run))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Bytes, Bytes]]:
    """The built-in decoder's, and transformers', by layout and by how it is trained."""
    folder = tmp_path_factory.mktemp("configs")
    paths = {name: Path(folder, f"{name}.json") for name in CONFIGS}
    for name, config in CONFIGS.items():
        # as transformers' Trainer has it: without a cache of keys and values, which a training never reads
        paths[name].write_text(json.dumps({**config, "use_cache": False}))
    jobs = [
        Job(model=model, batch=2, sequence=128, **how)
        for name, path in paths.items()
        for how in HOW.values()
        for model in (f"tests.estimator.decoders:{name}", str(path))
    ]
    found = [bytes_of(run) for run in simulate_jobs(jobs)]
    names = [(name, how) for name in CONFIGS for how in HOW]
    return dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("how", HOW)
def test_each_category_has_the_same_bytes(both: Any, name: str, how: str) -> None:
    ours, theirs = both[name, how]
    # theirs has one matrix for queries, keys and values: autocast casts what it takes once, and not three times
    joined = 0.1 if name == "gpt2" and "amp" in HOW[how] else 0.0

    for category in KINDS:
        assert ours.of[category] == pytest.approx(theirs.of[category], rel=max(joined, 2e-3)), category
    assert ours.peak == pytest.approx(theirs.peak, rel=max(joined, 0.01))


PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2"},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25},
    "llama-7b": {"model_type": "llama"},
    "llama3-8b": {
        **{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
    },
    "mixtral-8x7b": {"model_type": "mixtral"},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_named_sizes_have_the_parameters_of_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**PUBLISHED[name]))
        ours = Decoder(SHAPES[name])

    count = sum(parameter.numel() for parameter in theirs.parameters())
    assert sum(parameter.numel() for parameter in ours.parameters()) == count
