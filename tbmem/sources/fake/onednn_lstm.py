"""A layer of an LSTM that runs on the CPU goes in, what oneDNN takes and keeps for it comes out.

Sources: ``aten/src/ATen/native/mkldnn/RNN.cpp`` of torch (which copies, in which order), ``src/cpu/rnn/rnn_utils.hpp``
of oneDNN (``get_good_ld``: padded rows; ``set_workspace_sizes``: what is kept; ``scratch_gates_size``), compared with
each allocation of real layers in float32. Other types are not in here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tbmem.units import round_up

_ATEN = torch.ops.aten
_PAGE = 4096
_LINE = 16
"""Rows of float32 are whole cache lines, and longer where lines would collide."""
_BLOCK = 32
"""Columns that a forward pass without gradients multiplies at once."""
_GATES = 4
_FEW_PAGES = 3 * _PAGE
"""Between the parts of a scratchpad, which begin on pages: 2 to 4 of them were seen."""


def kept_bytes(args: tuple[Any, ...]) -> int:
    """What a layer keeps for its backward pass; 0 where gradients are off: torch goes by that, not by ``train``.

    Gates before and after their functions, three kinds of states, and outputs of all times: within 2 % of real runs
    where a layer is not wider at its input than at its output.

    Args:
        args: Of ``mkldnn_rnn_layer``.
    """
    if not torch.is_grad_enabled():
        return 0
    layer = _Layer.of(args, args[10])
    states = _pages(2 * (layer.steps + 1) * layer.samples * _row(max(layer.width, layer.hidden)))
    return 2 * _pages(layer.gates) + 3 * states + _pages(layer.cells * _row(layer.hidden))


def lstm_scratch(operator: Any, args: tuple[Any, ...], result: Any) -> int:
    """Bytes that live only while a layer runs, besides what it was given and what it returns.

    Args:
        operator: Of torch; 0 for one that is no LSTM in float32.
        args: The operator's.
        result: What it returned.
    """
    del result
    if operator is _ATEN.mkldnn_rnn_layer.default and args[0].dtype is torch.float32:
        return _Layer.of(args, args[10]).forward_scratch(trains=torch.is_grad_enabled())
    if operator is _ATEN.mkldnn_rnn_layer_backward.default and args[0].dtype is torch.float32:
        return _Layer.of(args, args[15]).backward_scratch() + _gradients_made(args)
    return 0


@dataclass(frozen=True, slots=True)
class _Layer:
    """One direction of one layer."""

    steps: int
    samples: int
    width: int
    """Of the input."""
    hidden: int

    @classmethod
    def of(cls, args: tuple[Any, ...], hidden: int) -> _Layer:
        steps, samples, width = args[0].shape
        return cls(steps, samples, width, hidden)

    @property
    def cells(self) -> int:
        return self.steps * self.samples

    @property
    def gates(self) -> int:
        return self.cells * _row(_GATES * self.hidden)

    @property
    def bias(self) -> int:
        """The sum of both."""
        return 4 * _GATES * self.hidden

    def forward_scratch(self, trains: bool) -> int:
        """Copies of both weights, turned round or in blocks, and the gates of all times."""
        in_blocks = 4 * _GATES * round_up(self.hidden, _BLOCK) * (self.width + self.hidden)
        return self.bias + (self._turned if trains else in_blocks) + self._scratchpad

    def backward_scratch(self) -> int:
        """Weights as they are, padded; their gradients, turned round; and the gradients of the gates."""
        lengths = (self.width, self.hidden)
        padded = sum(_GATES * self.hidden * _row(length) for length in lengths if _row(length) != 4 * length)
        return self.bias + padded + self._turned + self._scratchpad

    @property
    def _turned(self) -> int:
        return (self.width + self.hidden) * _row(_GATES * self.hidden)

    @property
    def _scratchpad(self) -> int:
        return self.gates + 2 * 4 * self.samples * self.hidden + _FEW_PAGES


def _gradients_made(args: tuple[Any, ...]) -> int:
    """Zeros for gradients that nobody asked for, and copies of those that do not lie as they should."""
    like, given = args[7:10], args[10:13]
    return sum(
        tensor.numel() * tensor.element_size()
        for tensor, gradient in zip(like, given, strict=True)
        if gradient is None or not gradient.is_contiguous()
    )


def _row(length: int) -> int:
    padded = round_up(length, _LINE)
    return 4 * (padded + _LINE if padded % 256 == 0 else padded)


def _pages(size: int) -> int:
    return round_up(size, _PAGE)
