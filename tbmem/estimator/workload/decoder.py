"""Built-in decoders, with the architectures of GPT-2 and Llama and the operators of transformers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tbmem.errors import UsageError

Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines."""
DROPOUT = 0.1
"""GPT-2's, everywhere; Llama has none."""
_COURSE = "a size of CS336 in Llama's layout, vocabulary of 10,000"
_MILLION = 1_000_000
_EXPERTS_PER_TOKEN = 2
"""Experts that each token is routed to."""


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Dimensions of a decoder."""

    layers: int
    width: int
    heads: int
    inner: int
    """Width of the feed-forward part."""
    vocabulary: int
    context: int
    """Longest sequence."""
    kv_heads: int | None = None
    """Heads of keys and values, if fewer."""
    llama: bool = True
    """RMSNorm, rotary positions and a gated feed-forward; else LayerNorm, learnt positions, GELU and dropout."""
    tied: bool = False
    """Whether the first and the last matrix are one."""
    experts: int = 0
    """Experts of each mixture-of-experts layer; 0: none."""
    about: str = ""
    """What the size's name does not say: ``medium`` is not GPT-2 medium."""

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads


def _course(layers: int, width: int, heads: int) -> DecoderShape:
    return DecoderShape(
        layers=layers, width=width, heads=heads, inner=4 * width, vocabulary=10_000, context=512, about=_COURSE
    )


def _gpt2(layers: int, width: int, heads: int) -> DecoderShape:
    return replace(_course(layers, width, heads), vocabulary=50257, context=1024, llama=False, tied=True, about="")


_7B = DecoderShape(layers=32, width=4096, heads=32, inner=11008, vocabulary=32000, context=4096)
SHAPES: dict[str, DecoderShape] = {
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    "small": _course(12, 768, 12),
    "medium": _course(24, 1024, 16),
    "large": _course(36, 1280, 20),
    "xl": _course(48, 1600, 25),
    "2.7b": _course(32, 2560, 32),
    "llama-7b": _7B,
    "llama-13b": replace(_7B, layers=40, width=5120, heads=40, inner=13824),
    "llama3-8b": replace(_7B, kv_heads=8, inner=14336, vocabulary=128256, context=8192),
    "mixtral-8x7b": replace(_7B, kv_heads=8, inner=14336, experts=8),
    "llama-70b": replace(
        _7B, layers=80, width=8192, heads=64, kv_heads=8, inner=28672, vocabulary=128256, context=8192
    ),
}
"""Built-in sizes; GPT-2's and Llama's as published, small to 2.7b those of Stanford's course CS336."""


def parameters_of(shape: DecoderShape) -> int:
    """Number of a size's parameters."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Decoder(shape).parameters())


def built_in_sizes() -> str:
    """What ``--model`` names without a file: ``'gpt2 (124 million), gpt2-medium (355 million), ...'``."""
    return ", ".join(f"{name} ({_in_words(parameters_of(shape))})" for name, shape in SHAPES.items())


def _in_words(parameters: int) -> str:
    billions = parameters / (1000 * _MILLION)
    return f"{billions:.1f} billion" if billions >= 1 else f"{parameters / _MILLION:.0f} million"


class Decoder(nn.Module):
    """A decoder-only transformer."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        norm = _RMSNorm if shape.llama else nn.LayerNorm
        self.tokens: nn.Module = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = None if shape.llama else nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList([_DecoderLayer(shape) for _ in range(shape.layers)])
        self.norm: nn.Module = norm(shape.width)
        self.output: nn.Module = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.tokens.weight

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """Logits of token ids; a pipeline stage takes and returns hidden states."""
        hidden = self.tokens(numbers)
        if self.positions is not None:
            hidden = self.dropout(hidden + self.positions(torch.arange(numbers.shape[1], device=numbers.device)))
        angles = rotary_angles(hidden, self.shape.head) if self.shape.llama else None
        for layer in self.layers:
            hidden = layer(hidden, angles)
        return self.output(self.norm(hidden))  # type: ignore[no-any-return]


class _DecoderLayer(nn.Module):
    """Attention and a feed-forward part, each with a norm and a residual."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        norm = _RMSNorm if shape.llama else nn.LayerNorm
        self.attention_norm = norm(shape.width)
        self.attention = _Attention(shape)
        self.feed_forward_norm = norm(shape.width)
        kind = MoEFeedForward if shape.experts else _GatedFeedForward if shape.llama else _FeedForward
        self.feed_forward: nn.Module = kind(shape)

    def forward(self, hidden: torch.Tensor, angles: Angles | None = None) -> torch.Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), angles)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))  # type: ignore[no-any-return]


class _Attention(nn.Module):
    """Causal attention with torch's own kernel."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.head = shape.head
        kv_heads = shape.kv_heads or shape.heads
        bias = not shape.llama
        self.dropout_probability = 0.0 if shape.llama else DROPOUT
        self.query = nn.Linear(shape.width, shape.heads * self.head, bias=bias)
        self.key = nn.Linear(shape.width, kv_heads * self.head, bias=bias)
        self.value = nn.Linear(shape.width, kv_heads * self.head, bias=bias)
        self.out = nn.Linear(shape.heads * self.head, shape.width, bias=bias)
        self.dropout = nn.Dropout(self.dropout_probability)

    def forward(self, hidden: torch.Tensor, angles: Angles | None = None) -> torch.Tensor:
        batch, length, _ = hidden.shape
        query, key, value = (
            part(hidden).view(batch, length, -1, self.head).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if angles is not None:
            query, key = apply_rotary(query, angles), apply_rotary(key, angles)
        dropout = self.dropout_probability if self.training else 0.0
        grouped = query.shape[1] != key.shape[1]
        result = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, enable_gqa=grouped
        )
        return self.dropout(self.out(result.transpose(1, 2).reshape(batch, length, -1)))  # type: ignore[no-any-return]


def rotary_angles(hidden: torch.Tensor, head: int) -> Angles:
    """Cosines and sines of rotary positions: computed in float32, once for all layers, in the dtype of ``hidden``."""
    length, device = hidden.shape[1], hidden.device
    steps = torch.arange(0, head, 2, device=device, dtype=torch.float32) / head
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), 10_000.0**-steps)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)


def apply_rotary(states: torch.Tensor, angles: Angles) -> torch.Tensor:
    """Queries or keys with rotary positions."""
    first, second = states.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return states * angles[0] + turned * angles[1]


class _RMSNorm(nn.Module):
    """RMSNorm in float32, of the operators of transformers' Llama instead of one fused kernel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        exact = hidden.to(torch.float32)
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * exact.to(hidden.dtype)


def gelu(states: torch.Tensor) -> torch.Tensor:
    """GELU by tanh, of the operators of transformers' GPT-2 (``gelu_new``)."""
    inner = math.sqrt(2 / math.pi) * (states + 0.044715 * torch.pow(states, 3.0))
    return 0.5 * states * (1.0 + torch.tanh(inner))


class _FeedForward(nn.Module):
    """Two linear layers with GELU between them, and dropout."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.inner)
        self.down = nn.Linear(shape.inner, shape.width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.down(gelu(self.up(hidden))))  # type: ignore[no-any-return]


class _GatedFeedForward(nn.Module):
    """The gated feed-forward part of Llama (SwiGLU)."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(hidden)) * self.up(hidden))  # type: ignore[no-any-return]


class MoEFeedForward(nn.Module):
    """Mixture of experts with balanced routing; ranks of expert parallelism hold some of the experts each."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.route = nn.Linear(shape.width, shape.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(shape.experts, shape.width, shape.inner))
        self.up = nn.Parameter(torch.empty(shape.experts, shape.width, shape.inner))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.inner, shape.width))
        self._group: Any = None
        self._slices: Any = None
        self._ranks, self._imbalance = 1, 1.0

    def divide(self, group: Any, ranks: int, imbalance: float = 1.0) -> None:
        """Keep this rank's share of the experts.

        ``imbalance`` is the number of tokens routed to them, as a multiple of the average.
        """
        if len(self.gate) % ranks:
            raise UsageError(f"--ep {ranks}: {len(self.gate)} experts cannot be divided evenly")
        self._group, self._ranks, self._imbalance = group, ranks, imbalance
        self._keep_share(ranks, gate=0, up=0, down=0)

    def slice(self, group: Any, ranks: int) -> None:
        """Keep this rank's share of each expert's inner width (tensor parallelism)."""
        if self.gate.shape[-1] % ranks:
            raise UsageError(f"--tp {ranks}: experts of width {self.gate.shape[-1]} cannot be divided evenly")
        self._slices = group
        self._keep_share(ranks, gate=2, up=2, down=1)

    def _keep_share(self, ranks: int, **dimensions: int) -> None:
        for name, dimension in dimensions.items():
            weight = getattr(self, name).detach()
            setattr(self, name, nn.Parameter(weight.narrow(dimension, 0, weight.shape[dimension] // ranks).clone()))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states of the same shape."""
        tokens = hidden.flatten(0, -2)
        if self._slices is not None:
            tokens = _SummedGradient.apply(tokens, self._slices)  # type: ignore[no-untyped-call]
        weights, _ = self.route(tokens).softmax(-1).topk(_EXPERTS_PER_TOKEN, -1)
        given = tokens.repeat_interleave(_EXPERTS_PER_TOKEN, 0)
        input_sizes, output_sizes = self._split_sizes(len(given))
        sent = self._exchange(given, input_sizes, output_sizes)
        sent = sent.view(len(self.gate), -1, sent.shape[-1])
        inner = F.silu(torch.bmm(sent, self.gate)) * torch.bmm(sent, self.up)
        back = self._exchange(torch.bmm(inner, self.down).flatten(0, 1), output_sizes, input_sizes)
        mixed = (back.view(len(tokens), _EXPERTS_PER_TOKEN, -1) * weights.unsqueeze(-1)).sum(1)
        if self._slices is not None:
            mixed = _Summed.apply(mixed, self._slices)  # type: ignore[no-untyped-call]
        return mixed.view_as(hidden)  # type: ignore[no-any-return]

    def _split_sizes(self, tokens: int) -> tuple[list[int], list[int]]:
        """Number of tokens sent to each rank, and received from each."""
        each = tokens // self._ranks
        got = math.ceil(each * self._imbalance / len(self.gate)) * len(self.gate)
        return [each] * self._ranks, [got if self._imbalance != 1 else each] * self._ranks

    def _exchange(self, tokens: torch.Tensor, input_sizes: list[int], output_sizes: list[int]) -> torch.Tensor:
        """All-to-all of tokens over the ranks of expert parallelism."""
        if self._ranks == 1:
            return tokens
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        return all_to_all_single_autograd(tokens, output_sizes, input_sizes, self._group)


class _Summed(torch.autograd.Function):
    """All-reduce of the forward's partial sums."""

    @staticmethod
    def forward(_: Any, part: torch.Tensor, group: Any) -> torch.Tensor:
        return _sum(part, group)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _SummedGradient(torch.autograd.Function):
    """All-reduce of the gradients of an input shared by all slices."""

    @staticmethod
    def forward(context: Any, tokens: torch.Tensor, group: Any) -> torch.Tensor:
        context.group = group
        return tokens.view_as(tokens)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _sum(gradient, context.group), None


def _sum(part: torch.Tensor, group: Any) -> torch.Tensor:
    from torch.distributed import _functional_collectives

    return _functional_collectives.all_reduce(part, "sum", group)  # type: ignore[no-any-return]
