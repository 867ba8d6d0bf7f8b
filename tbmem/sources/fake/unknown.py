"""A model and the operators that ran go in; sentences on memory of a GPU's kernels that is not counted come out."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import nn

_CONVOLUTION = "aten::convolution"
_CUDNN_TAKES = (
    "cuDNN's workspace for convolutions is not counted: it depends on the algorithm that cuDNN chooses on the GPU, and"
    " lives only while one runs; with torch.backends.cudnn.benchmark the tries of the first step may take more"
)
_CUDNN_KEEPS = (
    "recurrent layers ({}) were run cell by cell, as torch does without cuDNN; with it they keep a reserve of its"
    " own size for the backward pass instead of each cell's activations"
)


def not_counted(model: nn.Module, operators: Collection[str]) -> Iterator[str]:
    """What the GPU's libraries would take, and nobody can tell without them.

    Args:
        model: As it was trained.
        operators: Names of those that made memory.
    """
    if _CONVOLUTION in operators:
        yield _CUDNN_TAKES
    if kinds := sorted({type(module).__name__ for module in model.modules() if isinstance(module, nn.RNNBase)}):
        yield _CUDNN_KEEPS.format(", ".join(kinds))
