"""Estimates of config.json files against transformers' models that really train on the CPU.

    python benchmarks/estimate_configs.py [--only NAME] [--gpt2]

The real side is a loop of transformers and torch alone, in a process of its own: three steps of forward, backward and
AdamW, with torch.profiler's count of what the CPU's allocator has handed out since before the model was made. The other
side is what ``tbmem estimate CONFIG.json`` executes, for the CPU. ``--gpt2`` adds GPT-2 small as published (1 GiB).
Exit code 1: an estimate is more than 1 % off.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from estimate_accuracy import fake
from harness import heading, table

from tbmem.model.job import Job
from tbmem.units import MIB

_LLAMA = {
    **{"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 8},
    **{"num_key_value_heads": 2, "vocab_size": 4000, "max_position_embeddings": 256, "pad_token_id": 0},
}
_BERT = {
    **{"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4},
    **{"vocab_size": 4000, "max_position_embeddings": 256},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 256, "n_layer": 4, "n_head": 4},
        **{"vocab_size": 4000, "n_positions": 256, "bos_token_id": 0, "eos_token_id": 0},
    },
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_LLAMA},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_LLAMA, "tie_word_embeddings": True},
    "phi3": {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], **_LLAMA},
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], **_LLAMA, "sliding_window": None},
    "gemma": {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], **_LLAMA, "head_dim": 32},
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], **_BERT},
    "t5": {
        **{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 256, "d_kv": 64},
        **{"num_layers": 3, "num_heads": 4, "d_ff": 1024, "vocab_size": 4000, "decoder_start_token_id": 0},
    },
    "bert, classification": {
        **{"model_type": "bert", "architectures": ["BertForSequenceClassification"]},
        **{**_BERT, "id2label": {"0": "no", "1": "yes", "2": "maybe"}},
    },
    "vit": {
        **{"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 192},
        **{"num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768, "image_size": 64},
        **{"patch_size": 8, "id2label": {str(number): f"kind {number}" for number in range(10)}},
    },
    "gpt2 small": {
        **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12},
        **{"vocab_size": 50257, "n_positions": 1024, "bos_token_id": 50256, "eos_token_id": 50256},
    },
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in CONFIGS if name != "gpt2 small"},
    "llama, config in bfloat16": ("llama", {"dtype": "bfloat16"}),
    "llama, bf16 autocast": ("llama", {"amp": "bfloat16"}),
    "llama, checkpointed": ("llama", {"checkpoint": True}),
    "gpt2, checkpointed, bf16 autocast": ("gpt2", {"checkpoint": True, "amp": "bfloat16"}),
    "t5, checkpointed": ("t5", {"checkpoint": True}),
    "qwen2, inference": ("qwen2", {"inference": True}),
}
BATCH, TOKENS, STEPS = 4, 128, 3
_IMAGES, _CLASSES = ("pixel_values", "id2label")


def config_of(name: str, how: dict[str, Any]) -> dict[str, Any]:
    """As the file says it; the type is the config's own."""
    return {**CONFIGS[name], "torch_dtype": how.get("dtype", "float32")}


def real(name: str, how: dict[str, Any], batch: int = BATCH, tokens: int = TOKENS) -> float:
    """The peak of a training with transformers' model, by torch.profiler; nothing of tbmem has a part in it."""
    import torch

    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        _train(config_of(name, how), how, batch, tokens)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        rows = json.loads(Path(file.name).read_text())["traceEvents"]
    events = [one["args"] for one in rows if one.get("name") == "[memory]"]
    before = events[0]["Total Allocated"] - events[0]["Bytes"]
    return float(max(one["Total Allocated"] for one in events) - before)


def _train(config: dict[str, Any], how: dict[str, Any], batch: int, tokens: int) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        settings = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config["architectures"][0])._from_config(settings)
    if how.get("checkpoint"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters())
    model.train(not how.get("inference"))

    def loss() -> torch.Tensor:
        """As transformers' Trainer: what else the model gives is let go."""
        with torch.autocast("cpu", torch.bfloat16, enabled="amp" in how):
            result: torch.Tensor = model(**_batch(config, batch, tokens)).loss
        return result

    for _ in range(STEPS):
        if how.get("inference"):
            with torch.no_grad():
                model(input_ids=torch.randint(0, config["vocab_size"], (batch, tokens)))
        else:
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()


def _batch(config: dict[str, Any], batch: int, tokens: int) -> dict[str, Any]:
    import torch

    classes = torch.randint(0, len(config.get("id2label", "ab")), (batch,))
    if "image_size" in config:
        side = config["image_size"]
        return {"pixel_values": torch.randn(batch, 3, side, side), "labels": classes}
    numbers = torch.randint(0, config["vocab_size"], (batch, tokens))
    return {"input_ids": numbers, "labels": classes if "id2label" in config else numbers.clone()}


def estimated(name: str, how: dict[str, Any], batch: int = BATCH, tokens: int = TOKENS) -> dict[str, float]:
    """What the same config is estimated to take."""
    config = config_of(name, how)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(config))
        asked = {key: value for key, value in how.items() if key != "dtype"}
        length = None if "image_size" in config else tokens
        return fake(Job(model=str(path), batch=batch, sequence=length, device="cpu", steps=STEPS, **asked))


def really(cases: list[str], batch: int = BATCH, tokens: int = TOKENS) -> list[float]:
    """Peaks of cases, in a process of their own."""
    command = [sys.executable, __file__, "--real", json.dumps([cases, batch, tokens])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{cases}: {done.stderr.strip().splitlines()[-1]}")
    result: list[float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--gpt2", action="store_true", help="GPT-2 small, too")
    arguments.add_argument("--real", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.gpt2:
        CASES["gpt2 small"] = ("gpt2 small", {})
    if given.real:
        names, batch, tokens = json.loads(given.real)
        CASES["gpt2 small"] = ("gpt2 small", {})
        print(json.dumps([real(*CASES[name], batch, tokens) for name in names]))
        return 0
    rows, errors = [], []
    for name, case in CASES.items():
        if given.only in name:
            size = (1, 64) if name == "gpt2 small" else (BATCH, TOKENS)
            (truth,) = really([name], *size)
            estimate = estimated(*case, *size)
            errors.append(abs(estimate["all"] / truth - 1))
            rows.append(
                [
                    name,
                    f"{truth / MIB:.2f}",
                    f"{estimate['all'] / MIB:.2f}",
                    f"{estimate['all'] / truth - 1:+.3%}",
                    f"{estimate['seconds']:.1f}",
                ]
            )
            print(rows[-1], file=sys.stderr, flush=True)
    import transformers

    print(heading("Estimates of config files beside transformers' models that really train on the CPU"))
    print(f"transformers {transformers.__version__}\n")
    print(table(("training", "real MiB", "estimated MiB", "error", "seconds"), rows))
    print(f"\nworst {max(errors):.3%} of {len(errors)}")
    return 0 if max(errors) <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
