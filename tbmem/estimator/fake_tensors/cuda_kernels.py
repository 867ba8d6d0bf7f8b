"""Registers kernels that fake CUDA tensors need, and that torch lacks here."""

from __future__ import annotations

from typing import Any

import torch

_GRU_WORKSPACE, _GRU_GATES = 5, 3
"""Of a GRU cell, in multiples of the hidden size: gates and both states; the gates alone."""
_COMPOSED = ("mish_backward", "silu_backward")
_RMS_NORM = ("_fused_rms_norm", "_fused_rms_norm_backward")  # of CUDA since torch 2.9, which has both
"""Operators of which CUDA has a kernel, while a build of torch for the CPU composes them of others, whose results it
keeps for the backward pass. Source: ``aten/src/ATen/native/native_functions.yaml`` (``CUDA`` beside
``CompositeImplicitAutograd``)."""
_libraries: list[torch.library.Library] = []
"""Kernels are registered as long as their library exists."""


def has_rms_norm() -> bool:
    """Whether this torch has a kernel of the RMS norm for CUDA."""
    return all(hasattr(torch.ops.aten, name) for name in _RMS_NORM)


def register_kernels() -> None:
    """Register fake kernels of the fused GRU cell, which torch does not have, and kernels that a CUDA build has."""
    if _libraries:
        return
    composed = (*_COMPOSED, *(_RMS_NORM if has_rms_norm() else ()))
    for key, kernels in (("Meta", _GRU), ("CUDA", dict.fromkeys(composed, _never_run))):
        library = torch.library.Library("aten", "IMPL", key)  # type: ignore[no-untyped-call]
        for name, kernel in kernels.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                library.impl(name, kernel)  # type: ignore[no-untyped-call]
        _libraries.append(library)


def _never_run(*_: Any) -> None:
    """With a kernel for CUDA the operator is one for autograd; fake tensors run it on torch's ``meta`` device."""
    raise NotImplementedError("an estimate has no CUDA tensors")


def _gru(_inputs: Any, _hidden: Any, state: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Source: ``aten/src/ATen/native/cuda/RNN.cu`` (``GRU_WORKSPACE_MULTIPLIER``, ``_thnn_fused_gru_cell_cuda``)."""
    samples, width = state.shape
    return state.new_empty(samples, width), state.new_empty(samples, width * _GRU_WORKSPACE)


def _gru_backward(
    gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    samples, width = workspace.shape[0], workspace.shape[1] // _GRU_WORKSPACE
    of_input, of_hidden = (workspace.new_empty(samples, _GRU_GATES * width) for _ in range(2))
    of_biases = [workspace.new_empty(_GRU_GATES * width) if has_bias else None for _ in range(2)]
    return of_input, of_hidden, torch.empty_like(gradient), of_biases[0], of_biases[1]


_GRU = {"_thnn_fused_gru_cell": _gru, "_thnn_fused_gru_cell_backward": _gru_backward}
