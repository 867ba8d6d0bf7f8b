"""Models among a program's modules, and the model that an optimizer trains."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from tbmem.sources import plain


def model_of(optimizer: torch.optim.Optimizer) -> torch.nn.Module | None:
    """The outermost module that holds most of an optimizer's parameters.

    Looks at every object that the collector knows: some ten milliseconds, once.

    Returns:
        The module, or ``None`` if none holds any of them.
    """
    trained = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    best, most = None, 0
    for module in outermost(plain.live_objects(torch.nn.Module)[0]):
        held = sum(id(parameter) in trained for parameter in module.parameters())
        if held > most:
            best, most = module, held
    return best


def outermost(modules: Iterable[torch.nn.Module]) -> list[torch.nn.Module]:
    """The modules that are in no other; those that are not made yet are left out."""
    modules = list(modules)
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner and "_modules" in module.__dict__]
