"""The fused cell of a GRU, for which torch has no fake kernels, gets them: shapes in, shapes out.

Source: ``aten/src/ATen/native/cuda/RNN.cu`` (``GRU_WORKSPACE_MULTIPLIER``, ``_thnn_fused_gru_cell_cuda``).
"""

from __future__ import annotations

import torch

_WORKSPACE = 5
"""Gates, the new state and the old one, which the backward pass needs."""
_GATES = 3
_libraries: list[torch.library.Library] = []
"""A library's kernels are there as long as it is."""


def register_gru() -> None:
    """Let GRUs run on fake tensors of this process."""
    if _libraries:
        return
    library = torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]
    for name, kernel in (("_thnn_fused_gru_cell", _cell), ("_thnn_fused_gru_cell_backward", _backward)):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, kernel)  # type: ignore[no-untyped-call]
    _libraries.append(library)


def _cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    state: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    del input_gates, hidden_gates, input_bias, hidden_bias
    samples, width = state.shape
    return state.new_empty(samples, width), state.new_empty(samples, width * _WORKSPACE)


def _backward(
    gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    samples, width = workspace.shape[0], workspace.shape[1] // _WORKSPACE
    of_input, of_hidden = (workspace.new_empty(samples, _GATES * width) for _ in range(2))
    of_biases = [workspace.new_empty(_GATES * width) if has_bias else None for _ in range(2)]
    return of_input, of_hidden, torch.empty_like(gradient), of_biases[0], of_biases[1]
