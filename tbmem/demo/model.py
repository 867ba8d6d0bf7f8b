"""A small GPT-style language model over bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256
"""Tokens are bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """Sizes of the demo's model; the defaults train a step in a tenth of a second on two cores."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 128


class Block(nn.Module):
    """Causal self-attention and a two-layer perceptron, each after a layer norm."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1 = nn.LayerNorm(size.width)
        self.attention = nn.Linear(size.width, 3 * size.width)
        self.projection = nn.Linear(size.width, size.width)
        self.norm2 = nn.LayerNorm(size.width)
        self.mlp = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes ``(sequences, length, width)`` in and out."""
        x = x + self._attend(self.norm1(x))
        mlp: torch.Tensor = self.mlp(self.norm2(x))
        return x + mlp

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        sequences, length, width = x.shape
        heads = self.attention(x).view(sequences, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: torch.Tensor = self.projection(mixed.transpose(1, 2).reshape(x.shape))
        return joined


class LanguageModel(nn.Module):
    """Predicts the next byte; input and output embeddings are tied."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        # small, as in GPT-2: the tied embeddings are the output's weights too
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens of shape ``(sequences, length)`` to scores of shape ``(sequences, length, 256)``."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores
