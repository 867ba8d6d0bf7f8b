"""Finds the repeated layers of a model, which FSDP shards and activation checkpointing recomputes one at a time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from torch import nn

_LISTS = (nn.ModuleList, nn.ModuleDict)
"""Containers without a forward, which are no layers themselves."""


def transformer_layers(model: nn.Module) -> list[nn.Module]:
    """The repeated layers of a model, the outermost of each branch.

    Layers are two or more modules with parameters that are side by side in one module:

    - all of one class in a ``ModuleList``, a ``ModuleDict`` or a ``Sequential``;
    - of several classes in a ``ModuleList``, or in a ``ModuleDict`` whose keys differ in a number only, if they have
      submodules;
    - of the same class and with submodules in a ``Sequential``, beside others;
    - attributes of any other module whose names differ in a number only (``layer1``, ``layer2``), if they have
      submodules and are no ``Sequential``; a ``Sequential`` only if there are no layers in it.

    If some of all layers have submodules, only those count.
    """
    stacks = list(_stacks(model))
    blocks = [stack for stack in stacks if any(_is_composite(layer) for layer in stack)]
    return list(dict.fromkeys(chain.from_iterable(blocks or stacks)))


def _stacks(module: nn.Module) -> Iterator[list[nn.Module]]:
    members = _members(module)
    if layers := [member for member in members if not isinstance(member, _LISTS)]:
        yield layers
    inner = [member for member in module.children() if not any(member is layer for layer in layers)]
    found = [stack for child in inner for stack in _stacks(child)]
    yield from found
    if not found and not layers:
        yield from _numbered(module, (nn.Sequential,))


def _members(module: nn.Module) -> list[nn.Module]:
    """The modules directly in this one that repeat each other."""
    children = [child for child in module.children() if any(True for _ in child.parameters())]
    if len(children) > 1 and isinstance(module, (*_LISTS, nn.Sequential)) and _are_alike(module.children()):
        return children
    composites = [child for child in children if _is_composite(child)]
    if isinstance(module, nn.ModuleList):
        return composites if len(composites) > 1 else []
    if isinstance(module, nn.Sequential):
        return [one for one in composites if sum(type(one) is type(other) for other in composites) > 1]
    kinds = tuple({type(child) for child in composites if not isinstance(child, (*_LISTS, nn.Sequential))})
    return list(chain.from_iterable(_numbered(module, kinds))) if kinds else []


def _numbered(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[list[nn.Module]]:
    """Modules of some classes with submodules and parameters, whose names in a module differ in a number only."""
    groups: defaultdict[str, list[nn.Module]] = defaultdict(list)
    for name, child in module.named_children():
        if re.search(r"\d", name) and isinstance(child, kinds) and _is_composite(child):
            groups[re.sub(r"\d+", "#", name)].append(child)
    yield from (group for group in groups.values() if len(group) > 1)


def _is_composite(module: nn.Module) -> bool:
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _are_alike(modules: Iterable[nn.Module]) -> bool:
    return len({type(module) for module in modules}) == 1
