"""Factories of lit-gpt's LoRA trainings for tbmem estimate; PYTHONPATH has a checkout of lit-gpt.

tbmem estimate --model benchmarks/programs/lit_gpt_lora.py:phi --batch 4 --gpu a100-40gb
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch


def make(name: str, longest: int, batch: int) -> dict[str, Any]:
    """A model in bfloat16, and one step of ``finetune/lora.py`` on samples of ``longest`` tokens."""
    from lit_gpt.lora import GPT, Config, mark_only_lora_as_trainable
    from lit_gpt.utils import chunked_cross_entropy

    torch.set_default_dtype(torch.bfloat16)
    model = GPT(Config.from_name(name, r=8, alpha=16, dropout=0.05, to_query=True, to_value=True))
    torch.set_default_dtype(torch.float32)
    mark_only_lora_as_trainable(model)
    model.max_seq_length = longest

    def step(model: Any, tokens: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        logits = [chunk.float() for chunk in model(tokens, lm_head_chunk_size=128)]  # Fabric returns float32
        logits[-1] = logits[-1][..., :-1, :]
        chunked_cross_entropy(logits, tokens[..., 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"model": model, "batch": torch.zeros(batch, longest, dtype=torch.int64), "step": step}


phi = partial(make, "phi-1_5", 1044)
stablelm = partial(make, "stablelm-base-alpha-3b", 1034)
llama = partial(make, "Llama-2-7b-hf", 1304)
llama_13b = partial(make, "Llama-2-13b-hf", 1304)
