"""Hands models, batches and functions of the caller's over to the process that executes jobs, without weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from tbmem.errors import UsageError, first_line
from tbmem.model import handover

_MOST_VALUES = 1 << 16
"""Whole numbers and truth values of smaller tensors are handed over: lengths and masks decide sizes."""
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


class Given(NamedTuple):
    """What the caller has given instead of a name."""

    model: Any
    """A module, or a function that makes what a factory makes."""
    batch: Any = None
    loss: Callable[..., Any] | None = None
    optimizer: Any = None
    """A function of the parameters, or an optimizer."""
    step: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """Name of the class or function."""
        if isinstance(self.model, nn.Module):
            return type(_unwrapped(self.model)).__name__
        return str(getattr(self.model, "__qualname__", type(self.model).__name__)).rpartition(".")[2]

    @property
    def samples(self) -> int | None:
        """Samples of the batch: the first size of its first tensor; ``None`` without a tensor."""
        return samples_of(self.batch)

    def packed(self) -> bytes:
        """Everything as bytes; tensors as shapes, with their values only where these are few whole numbers.

        Raises:
            UsageError: Something cannot be handed over to another process.
        """
        model = _unwrapped(self.model) if isinstance(self.model, nn.Module) else self.model
        optimizer = _factory_of(self.optimizer) if isinstance(self.optimizer, torch.optim.Optimizer) else self.optimizer
        try:
            return handover.packed(tuple(self._replace(model=model, optimizer=optimizer)), _Pickler)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"{self.name}: cannot be handed over to the process that makes the estimate"
                f" ({first_line(error)}); give a function that makes the model, and refers to nothing that is"
                " open"
            ) from error


def unpacked(data: bytes) -> Given:
    """What was packed; its tensors are made by torch.empty and torch.tensor on the CPU."""
    return Given(*handover.unpacked(data))


def samples_of(batch: Any) -> int | None:
    """The first size of a batch's first tensor; ``None`` without one."""
    return next((len(leaf) for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim()), None)


def resized(batch: Any, samples: int) -> Any:
    """The batch with another number of samples: tensors with the first size of the first one are cut or repeated."""
    before = samples_of(batch)
    if before is None or before in (0, samples):
        return batch

    def resize(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.dim() or len(leaf) != before:
            return leaf
        return torch.cat([leaf] * -(-samples // before))[:samples].clone()

    return tree_map(resize, batch)


class _Pickler(handover.Pickler):
    """Pickles tensors without their memory."""

    def reducer_override(self, value: Any) -> Any:
        """How a value is made again."""
        if isinstance(value, torch.Tensor):
            return _reduced(value)
        if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
            raise UsageError("a storage without a tensor cannot be handed over; give a function that makes the model")
        return super().reducer_override(value)


def _reduced(tensor: torch.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    if tensor.layout is not torch.strided or tensor.is_quantized or hasattr(tensor, "__tensor_flatten__"):
        raise UsageError(
            f"a tensor of {type(tensor).__name__} ({str(tensor.layout).removeprefix('torch.')}) cannot be handed over;"
            " give a function that makes the model"
        )
    attributes = dict(vars(tensor)) if isinstance(tensor, nn.Parameter) else {}
    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    values = tensor.tolist() if is_whole and tensor.numel() <= _MOST_VALUES and not tensor.is_meta else None
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    return _remade, (
        isinstance(tensor, nn.Parameter),
        shape,
        stride,
        tensor.dtype,
        tensor.requires_grad,
        values,
        attributes,
    )


def _remade(
    is_parameter: bool,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    requires_grad: bool,
    values: Any,
    attributes: Mapping[str, Any],
) -> torch.Tensor:
    if values is None:
        tensor = torch.empty_strided(shape, stride, dtype=dtype, device="cpu")
    else:
        tensor = torch.tensor(values, dtype=dtype, device="cpu").reshape(shape)
    if not is_parameter:
        return tensor.requires_grad_(requires_grad)
    parameter = nn.Parameter(tensor, requires_grad=requires_grad)
    vars(parameter).update(attributes)
    return parameter


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module that torch.compile was given.

    Raises:
        UsageError: The module is spread over ranks.
    """
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, _WRAPPERS):
        raise UsageError(f"{type(model).__name__} cannot be estimated as it is; give its .module, and say ddp=N")
    return model


def _factory_of(optimizer: torch.optim.Optimizer) -> Callable[[Any], torch.optim.Optimizer]:
    """A function that makes the same optimizer for other parameters, which belong to one group."""
    kind = type(optimizer)
    accepted = inspect.signature(kind.__init__).parameters
    return partial(kind, **{name: value for name, value in optimizer.defaults.items() if name in accepted})
