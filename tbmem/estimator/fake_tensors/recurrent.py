"""Runs recurrent layers of fake CUDA tensors as cuDNN does: what it allocates, in its order.

Fake tensors have no cuDNN. Source: ``aten/src/ATen/native/cudnn/RNN.cpp`` (``_cudnn_rnn``, ``_cudnn_rnn_backward``,
``_cudnn_impl``) and ``aten/src/ATen/cudnn/AutocastRNN.cpp``. The sizes that cuDNN decides are those of the rehearsal's
``device/cudnn.cpp``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from tbmem.estimator.fake_tensors.fake_cuda import patched

_LSTM = "lstm"
_GATES = {_LSTM: 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_GENERATORS = 1024 * 48
"""Bytes of the states of dropout's random numbers, for each multiprocessor."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a recurrent layer."""

    gates: int
    layers: int
    directions: int
    batch_first: bool
    trains: bool
    has_cells: bool

    def workspace(self, steps: torch.Tensor, hidden: int) -> int:
        """Values that cuDNN takes while it runs; ``steps`` is time, samples, values."""
        return prod(steps.shape[:2]) * self.gates * hidden * self.directions

    def reserve(self, steps: torch.Tensor, hidden: int, outputs: int) -> int:
        """Values that cuDNN keeps for the backward pass."""
        kept = (self.gates + self.has_cells) * hidden + outputs
        return prod(steps.shape[:2]) * kept * self.layers * self.directions if self.trains else 0


class _Recurrent(torch.autograd.Function):
    """One call of cuDNN, with initial states and weights in the dtype of the input."""

    @staticmethod
    def forward(
        ctx: Any, call: _Call, inputs: torch.Tensor, hidden: torch.Tensor, cells: torch.Tensor, *weights: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        steps = inputs.transpose(0, 1) if call.batch_first else inputs
        read = steps.contiguous()
        outputs, width = hidden.shape[-1], cells.shape[-1]
        output = read.new_empty(*read.shape[:2], outputs * call.directions)
        last = [torch.empty_like(state) for state in (hidden, cells)[: 1 + call.has_cells]]
        buffer = weights[0] if _is_flat(weights) else weights[0].new_empty(sum(weight.numel() for weight in weights))
        workspace = read.new_empty(call.workspace(read, width))
        reserve = read.new_empty(call.reserve(read, width, outputs))
        del workspace, read
        output = output.transpose(0, 1) if call.batch_first else output
        ctx.call, ctx.shapes = call, [weight.shape for weight in weights]
        ctx.save_for_backward(inputs, hidden, cells, output, reserve, buffer)
        ctx.set_materialize_grads(False)
        return output, *last

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None, *of_last: torch.Tensor | None) -> tuple[Any, ...]:
        inputs, hidden, cells, output, _, _ = ctx.saved_tensors
        call, states = ctx.call, (hidden, cells)
        gradient = torch.zeros_like(output) if gradient is None else gradient
        kept = [torch.zeros_like(state) if one is None else one for one, state in zip(of_last, states, strict=False)]
        steps, above = ((tensor.transpose(0, 1) if call.batch_first else tensor) for tensor in (inputs, gradient))
        read, above = steps.contiguous(), above.contiguous()
        result = torch.empty_like(read)
        of_states = [torch.empty_like(state) for state in states[: len(of_last)]]
        size = call.workspace(read, cells.shape[-1])
        read.new_empty(size)
        del above, read
        read = steps.contiguous()
        flat = read.new_empty(sum(prod(shape) for shape in ctx.shapes))
        read.new_empty(size)
        del read, kept
        result = result.transpose(0, 1) if call.batch_first else result
        of_cells = of_states[1] if call.has_cells else None
        return None, result, of_states[0], of_cells, *_views(flat, ctx.shapes)


class _Cast(torch.autograd.Function):
    """Weights in autocast's dtype, in one buffer."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.dtypes = [weight.dtype for weight in weights]
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights), dtype=dtype)
        return tuple(_views(flat, [weight.shape for weight in weights]))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        pairs = zip(reversed(gradients), reversed(ctx.dtypes), strict=True)
        return None, *reversed([gradient.to(dtype) for gradient, dtype in pairs])


def _views(flat: torch.Tensor, shapes: list[torch.Size]) -> list[torch.Tensor]:
    parts = torch.split(flat, [prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _is_flat(weights: tuple[torch.Tensor, ...]) -> bool:
    return len({weight.untyped_storage()._cdata for weight in weights}) == 1


def _apply(function: Any, *args: Any) -> tuple[torch.Tensor, ...]:
    result: tuple[torch.Tensor, ...] = function.apply(*args)
    return result


def _by_cudnn(kind: str, original: Callable[..., Any], multiprocessors: int, generators: list[Any]) -> Any:
    def run(inputs: Any, states: Any, weights: Any, *rest: Any) -> Any:
        if inputs.device.type != "cuda" or len(rest) != 6 or not torch.backends.cudnn.enabled:
            return original(inputs, states, weights, *rest)
        _, layers, dropout, trains, bidirectional, batch_first = rest
        if dropout and trains and not generators:
            generators.append(inputs.new_empty(multiprocessors * _GENERATORS, dtype=torch.uint8))
        call = _Call(_GATES[kind], layers, 1 + bidirectional, batch_first, trains, kind == _LSTM)
        hidden, cells = states if kind == _LSTM else (states, states)
        if torch.is_autocast_enabled("cuda"):
            low = torch.get_autocast_dtype("cuda")
            weights = _apply(_Cast, low, *weights) if weights[0].dtype is torch.float32 else weights
            cells = cells.to(low)
            hidden = hidden.to(low) if kind == _LSTM else cells
            inputs = inputs.to(low)
        output, *last = _apply(_Recurrent, call, inputs, hidden, cells, *weights)
        return (output, *last)

    return run


def flatten(layer: nn.RNNBase) -> None:
    """Move a layer's weights on CUDA into one buffer, as ``flatten_parameters`` does."""
    weights: list[Any] = layer._flat_weights
    if not all(isinstance(weight, FakeTensor) and weight.device.type == "cuda" for weight in weights):
        return
    with torch.no_grad():
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights))
        for weight, view in zip(weights, _views(flat, [weight.shape for weight in weights]), strict=True):
            weight.data = view


@contextlib.contextmanager
def recurrent_layers(multiprocessors: int) -> Iterator[None]:
    """Within the block recurrent layers of CUDA tensors take what cuDNN takes on a GPU with these multiprocessors."""
    generators: list[Any] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(patched(nn.RNNBase, "flatten_parameters", flatten))
        for kind in _GATES:
            original = getattr(torch._VF, kind)
            stack.enter_context(patched(torch._VF, kind, _by_cudnn(kind, original, multiprocessors, generators)))
        yield
