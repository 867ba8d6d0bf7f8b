"""A model, its optimizer and the operators that ran go in; sentences on memory that is not counted come out."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import nn

from tbmem.units import format_bytes

_CONVOLUTION = "aten::convolution"
_CUDNN_TAKES = (
    "cuDNN's workspace for convolutions is not counted: it depends on the algorithm that cuDNN chooses on the GPU, and"
    " lives only while one runs; with torch.backends.cudnn.benchmark the tries of the first step may take more"
)
_CUDNN_KEEPS = (
    "recurrent layers ({}) were run cell by cell, as torch does without cuDNN; with it they keep a reserve of its"
    " own size for the backward pass instead of each cell's activations"
)
_LBFGS = (
    "LBFGS decides by values, which an estimate does not have, and ends before it keeps any: of its history, which"
    " grows to {}, nothing is counted"
)


_NO_LAYERS = (
    "--checkpoint changed nothing: the model has no list of like layers; checkpoint its parts in the factory"
    " (torch.utils.checkpoint)"
)


def not_checkpointed(layers: Collection[nn.Module]) -> Iterator[str]:
    """Whether there was anything to checkpoint.

    Args:
        layers: Of the model.
    """
    if not layers:
        yield _NO_LAYERS


def history_not_counted(optimizer: object) -> Iterator[str]:
    """What an optimizer keeps in a real run only.

    Args:
        optimizer: As it was used.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        (group,) = optimizer.param_groups
        size = sum(parameter.numel() * parameter.element_size() for parameter in group["params"])
        # a change of the parameters and one of the gradients for each entry
        yield _LBFGS.format(format_bytes(2 * group["history_size"] * size))


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
