"""The training run of ``tbmem demo``: a small language model on the standard library's own sources."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tbmem.config import Config
from tbmem.demo import Fault
from tbmem.model.run_summary import RunSummary
from tbmem.runtime.callback import MemoryCallback
from tbmem.sources.counters.devices import CPU, available_devices

VOCABULARY = 256
"""Number of tokens: bytes."""
_SEED = 20_260
_ENOUGH_TEXT = 4_000_000
_SEQUENCES = 16
_OUTLIER = 8
"""Size of the injected spike's batch, in usual batches."""
_OUTLIER_AT = 0.75
"""Position of that batch in the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """Sizes of the demo's model; the defaults train a step in a tenth of a second on one core."""

    layers: int = 2
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
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        sequences, length, width = x.shape
        heads = self.attention(x).view(sequences, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(mixed.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]


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
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class DemoTraining:
    """Trains a small language model on the standard library's sources, step by step."""

    def __init__(self, device: torch.device, steps: int, fault: Fault | None) -> None:
        torch.manual_seed(_SEED)
        self.size = ModelSize()
        self.device = device
        self.model = LanguageModel(self.size).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.history: list[torch.Tensor] = []
        self._fault = fault
        self._outlier_step = max(round(_OUTLIER_AT * steps), 1)
        self._generator = torch.Generator().manual_seed(_SEED)
        self._text = load_text()

    def step(self, number: int) -> float:
        """Train on batch ``number``, from 1; returns the loss in nats per byte."""
        outlier = self._fault is Fault.SPIKE and number == self._outlier_step
        sequences = _SEQUENCES * (_OUTLIER if outlier else 1)
        inputs, targets = draw_batch(self._text, sequences, self.size.context, self._generator, self.device)
        scores = self.model(inputs)
        loss = F.cross_entropy(scores.view(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self._fault is Fault.LEAK:
            self.history.append(scores)  # the fault: the scores of every step are kept
        return loss.item()


def run_demo(
    config: Config,
    *,
    steps: int = 60,
    fault: Fault | None = None,
    device: torch.device | None = None,
    console: Any = None,
    on_step: Callable[[int, float], None] | None = None,
) -> RunSummary | None:
    """Train under a MemoryCallback; returns its summary, ``None`` if it was not enabled."""
    training = DemoTraining(device or pick_device(), steps, fault)
    with MemoryCallback(config, console=console) as memory:
        memory.watch(training.model, training.optimizer)
        for number in range(1, steps + 1):
            loss = training.step(number)
            memory.step()
            if on_step is not None:
                on_step(number, loss)
    return memory.summary


def pick_device() -> torch.device:
    """The accelerator if there is one, else the CPU."""
    return torch.device(next((name for name in available_devices() if name != CPU), CPU))


def load_text() -> torch.Tensor:
    """Up to 4 MB of text as bytes: the standard library's modules."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= _ENOUGH_TEXT:
            break
    return torch.frombuffer(text[:_ENOUGH_TEXT], dtype=torch.uint8)


def draw_batch(
    text: torch.Tensor, sequences: int, length: int, generator: torch.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random sequences of the text and, for each byte, the next one: int64 of shape ``(sequences, length)``."""
    starts = torch.randint(len(text) - length - 1, (sequences, 1), generator=generator)
    pieces = text[starts + torch.arange(length + 1)].to(device, torch.int64)
    return pieces[:, :-1], pieces[:, 1:]
