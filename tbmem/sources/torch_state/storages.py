"""Storages behind models, optimizers and tensors, with names; models among a program's modules."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tbmem.interruption import raise_interruption
from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.sources.program import tracked_objects
from tbmem.sources.program.ownership import user_frames

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def tensor_notes(tensor: torch.Tensor, category: Category, name: str) -> list[StorageNote]:
    """One note per storage behind a tensor.

    The parts of a wrapper (DTensor, a quantised tensor) and of a sparse tensor are inspected; what holds no memory
    (meta, fake) or cannot be inspected has none.
    """
    notes = []
    # a plain tensor, the usual one: every call costs time in the program's forward pass
    is_plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_meta
    for part in (tensor,) if is_plain else _parts(tensor):
        try:
            storage = part.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError) as error:
            raise_interruption(error)
            continue
        if address and size:
            notes.append(StorageNote(time.time_ns(), str(part.device), address, size, category, name))
    return notes


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            part = getattr(tensor, name)
            if isinstance(part, torch.Tensor):  # DTensor names its mesh as well
                yield from _parts(part)
    elif tensor.layout is torch.strided:
        if not tensor.is_meta and not isinstance(tensor, FakeTensor):
            yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def model_notes(model: torch.nn.Module, prefix: str = "") -> Iterator[StorageNote]:
    """Parameters and buffers of a model by their names in it, below ``prefix``; a tied weight has its first name."""
    for name, parameter in model.named_parameters(prefix):
        yield from tensor_notes(parameter, Category.PARAMETER, name)
    for name, buffer in model.named_buffers(prefix):
        yield from tensor_notes(buffer, Category.BUFFER, name)


def gradient_notes(parameters: Iterable[tuple[str, torch.Tensor]]) -> Iterator[StorageNote]:
    """Gradients that exist now, each by the name of its parameter."""
    for name, parameter in parameters:
        gradient = parameter.grad if parameter.is_leaf else None
        if gradient is not None:
            yield from tensor_notes(gradient, Category.GRADIENT, name)


def optimizer_parameters(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], prefix: str = ""
) -> Iterator[tuple[str, torch.Tensor]]:
    """An optimizer's parameters with their names by ``id``, or else ``prefix`` and position, ``group0.param3``."""
    for number, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            yield names.get(id(parameter), f"{prefix}group{number}.param{position}"), parameter


def optimizer_state_notes(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], prefix: str = ""
) -> Iterator[StorageNote]:
    """Tensors in an optimizer's state, such as ``head.weight.exp_avg``, named as by ``optimizer_parameters``."""
    for name, parameter in optimizer_parameters(optimizer, names, prefix):
        for key, value in _tensors(optimizer.state.get(parameter, {})):
            yield from tensor_notes(value, Category.OPTIMIZER_STATE, f"{name}.{key}")


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of one parameter's state, also those in lists and mappings (L-BFGS, Shampoo)."""
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            yield str(key), value
        elif isinstance(value, Mapping):
            for inner, tensor in _tensors(value):
                yield f"{key}.{inner}", tensor
        elif isinstance(value, (list, tuple)):
            yield from ((f"{key}.{i}", each) for i, each in enumerate(value) if isinstance(each, torch.Tensor))


def model_of(optimizer: torch.optim.Optimizer) -> torch.nn.Module | None:
    """The outermost module that holds most of an optimizer's parameters; ``None`` if no module holds any.

    A script's own module mostly has it in a global variable. Where none of those that are running has one that holds
    all of the parameters, it looks at every object that the collector knows: some ten milliseconds to a hundred.
    """
    trained = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    model, held = _most_trained(_modules_in_globals(sys._getframe()), trained)
    if held < len(trained):
        model, _ = _most_trained(tracked_objects.live_objects(torch.nn.Module)[0], trained)
    return model


def _modules_in_globals(frame: FrameType) -> list[torch.nn.Module]:
    """The modules in global variables of the user's modules whose functions are running."""
    spaces = {id(each.f_globals): each.f_globals for each in user_frames(frame)}
    values = {id(value): value for space in spaces.values() for value in list(space.values())}
    # by the type: isinstance() would make a lazy object load what it stands for
    return [value for value in values.values() if issubclass(type(value), torch.nn.Module)]


def _most_trained(modules: Iterable[torch.nn.Module], trained: Set[int]) -> tuple[torch.nn.Module | None, int]:
    """The outermost of some modules that holds most of the trained parameters, and how many."""
    best, most = None, 0
    for module in outermost(modules):
        held = sum(id(parameter) in trained for parameter in module.parameters())
        if held > most:
            best, most = module, held
    return best, most


def outermost(modules: Iterable[torch.nn.Module]) -> list[torch.nn.Module]:
    """The modules that are in no other; those that are not initialized yet are left out."""
    modules = list(modules)
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner and "_modules" in module.__dict__]
