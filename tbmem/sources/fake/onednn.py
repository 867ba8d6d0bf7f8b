"""A convolution that runs on the CPU goes in, bytes of the copies that its kernels work on come out.

oneDNN computes in layouts of its own: tensors in torch's plain layout are copied, channels to whole vectors, before,
and the result afterwards; tensors whose channels come last are taken as they are, except for weights.

Sources: ``aten/src/ATen/native/mkldnn/Conv.cpp`` ("MKLDNN Convolution Memory Formats": what is copied, and
``mkldnn_to_dense``: how it comes back), ``ConvolutionMM2d.cpp`` and ``ConvolutionMM3d.cpp`` (columns of the kernels
that are torch's own), compared with each allocation of real convolutions. What a kernel takes besides, to sum up or to
transpose in each thread, is not in here: it depends on the kernel that oneDNN writes for this processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from tbmem.units import round_up

_ATEN = torch.ops.aten
_ONEDNN = ("Mkldnn", "MkldnnTranspose", "???")
"""torch's Python knows no name for the second, and gives the last: nothing else on a CPU has none."""
_COLUMNS = ("Slow2d", "Slow3d")
_FEW = 3
"""Channels of a picture: a kernel of their own sums up the gradient of the weight from the plain input."""


def convolution_scratch(operator: Any, args: tuple[Any, ...], result: Any) -> int:
    """Bytes that a convolution needs at its highest, besides what it was given and what it returns.

    Args:
        operator: Of torch; 0 for one that is no convolution.
        args: The operator's.
        result: What it returned.
    """
    if operator is _ATEN.convolution.default:
        one = _forward(args, result)
        levels = one.forward_levels()
        kept = _bytes(result)
    elif operator is _ATEN.convolution_backward.default:
        one = _backward(args)
        levels = one.backward_levels(*args[10][:2])
        kept = sum(_bytes(gradient) for gradient in result if gradient is not None)
    else:
        return 0
    return max(0, max(levels, default=0) - kept)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """One convolution, and how the processor computes it."""

    input: torch.Tensor
    weight: torch.Tensor
    output: torch.Tensor
    stride: list[int]
    padding: list[int]
    transposed: bool
    groups: int
    backend: str

    def forward_levels(self) -> list[int]:
        """Bytes in use at each point of the forward pass at which they may be most."""
        if self.backend in _COLUMNS:
            return [_bytes(self.output) + self._columns()]
        if self.backend not in _ONEDNN:
            return []
        if self._channels_last:
            return [_bytes(self.output) + self._blocked_weight]
        return self._moved(self.input, self.output, spreads=self.transposed)

    def backward_levels(self, needs_input: bool, needs_weight: bool) -> list[int]:
        """The same of the backward pass: first the input's gradient is made, then the weight's beside it."""
        levels: list[int] = []
        held = _bytes(self.input) if needs_input else 0
        if self.backend in _COLUMNS:
            return [held + _bytes(self.weight) * needs_weight + self._columns()]
        if self.backend not in _ONEDNN:
            return []
        if needs_input and self._channels_last:
            levels.append(held + self._blocked_weight)
        elif needs_input:
            levels += self._moved(self.output, self.input, spreads=not self.transposed)
        if needs_weight:
            levels += [held + level for level in self._weight_levels()]
        return levels

    def _moved(self, given: torch.Tensor, made: torch.Tensor, spreads: bool) -> list[int]:
        """Copies of what is given and of the weight, and the copy that is made; then that and the plain result.

        A stride that spreads pixels apart, and bfloat16 on AMX's tiles, are computed with channels last, unpadded, and
        what comes out is brought into the plain layout in two steps.
        """
        if (spreads and max(self.stride) > 1 and not self._narrow) or self._tiles:
            return [_bytes(given) + _bytes(self.weight) + _bytes(made), 3 * _bytes(made)]
        copy = self._blocked(made)
        # few channels of a picture are read as they lie
        plain = given is self.input and self.groups == 1 and given.shape[1] < self._vector
        return [
            (0 if plain else self._blocked(given)) + self._blocked_weight + copy,
            copy + _bytes(made),
        ]

    def _weight_levels(self) -> list[int]:
        weight, plain = self._blocked_weight, _bytes(self.weight)
        if self._channels_last:
            return [weight + 2 * plain]
        if self._uneven:
            return [weight + plain]
        given = self._summed_input()
        return [self._blocked(self.output) + given + weight, weight + plain]

    def _summed_input(self) -> int:
        """The input's copy for the weight's gradient; up to 8 channels are put into a narrower vector."""
        channels = self.input.shape[1]
        if channels <= _FEW:
            return 0
        return _bytes(self.input) // channels * 8 if channels <= 8 and self.groups == 1 else self._blocked(self.input)

    def _columns(self) -> int:
        """Torch's own kernels write each pixel's surroundings into a row, unless a kernel is one pixel wide."""
        kernel = self.weight.shape[2:]
        if prod(kernel) == 1 and max(self.stride) == 1 and max(self.padding) == 0:
            return 0
        pixels = self.output.shape[0] * prod(self.output.shape[2:])
        return int(pixels * prod(self.weight.shape[1:]) * self.input.element_size())

    def _blocked(self, tensor: torch.Tensor) -> int:
        """Of a copy with whole vectors of channels."""
        channels = tensor.shape[1]
        return _bytes(tensor) // channels * self._whole(channels)

    @property
    def _blocked_weight(self) -> int:
        first, second = self.weight.shape[:2]
        whole = self._whole(first) * (second if self.groups > 1 or second < self._vector else self._whole(second))
        return _bytes(self.weight) // (first * second) * whole

    def _whole(self, channels: int) -> int:
        return round_up(channels, self._vector) if self.groups == 1 or self._depthwise else channels

    @property
    def _channels_last(self) -> bool:
        return any(
            suggest_memory_format(tensor) in (torch.channels_last, torch.channels_last_3d)
            for tensor in (self.input, self.weight)
        )

    @property
    def _depthwise(self) -> bool:
        return self.groups > 1 and self.weight.shape[0] == self.groups == self.input.shape[1]

    @property
    def _narrow(self) -> bool:
        """Whether a group has fewer channels than the widest vector."""
        return self.groups > 1 and self.weight.shape[1] < 16

    @property
    def _tiles(self) -> bool:
        return self.input.dtype is torch.bfloat16 and not self._depthwise and torch.cpu._is_amx_tile_supported()

    @property
    def _uneven(self) -> bool:
        """Whether groups are no whole vectors: the gradient of the weight is then made of the plain tensors."""
        return self.groups > 1 and not self._depthwise and self.weight.shape[1] % 8 != 0

    @property
    def _vector(self) -> int:
        return 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


def _forward(args: tuple[Any, ...], output: torch.Tensor) -> _Convolution:
    given, weight, bias, stride, padding, dilation, transposed, extra, groups = args
    backend = _backend(given, weight, bias, stride, padding, dilation, transposed, extra, groups, None)
    return _Convolution(given, weight, output, stride, padding, transposed, groups, backend)


def _backward(args: tuple[Any, ...]) -> _Convolution:
    output, given, weight, bias_sizes, stride, padding, dilation, transposed, extra, groups = args[:10]
    backend = _backend(given, weight, None, stride, padding, dilation, transposed, extra, groups, bias_sizes)
    return _Convolution(given, weight, output, stride, padding, transposed, groups, backend)


def _backend(*args: Any) -> str:
    """Torch's own choice of kernel."""
    return str(torch._C._select_conv_backend(*args).name)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
