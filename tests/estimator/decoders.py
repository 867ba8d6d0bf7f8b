"""Built-in decoders of sizes of no name, as factories."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tbmem.estimator.workload.decoder import Decoder, DecoderShape

Made = tuple[Decoder, tuple[torch.Tensor], Any]


def gpt2(batch: int, sequence: int) -> Made:
    shape = DecoderShape(layers=3, width=128, heads=4, inner=512, vocabulary=500, context=128, llama=False, tied=True)
    return made(shape, batch, sequence)


def llama(batch: int, sequence: int) -> Made:
    shape = DecoderShape(layers=3, width=128, heads=4, kv_heads=2, inner=352, vocabulary=500, context=128)
    return made(shape, batch, sequence)


def made(shape: DecoderShape, batch: int, sequence: int) -> Made:
    return Decoder(shape), (torch.zeros(batch, sequence, dtype=torch.int64),), next_token


def next_token(logits: torch.Tensor, batch: tuple[torch.Tensor]) -> torch.Tensor:
    """As the built-in names have it."""
    return F.cross_entropy(logits.float().flatten(0, 1), batch[0].flatten())
