"""Prefixes that keep the names of several watched models apart."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import NamedTuple

import torch

from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import locals_of, nobody_traces, user_frames


class _Watched(NamedTuple):
    model: weakref.ref[torch.nn.Module]
    label: str
    prefix: str = ""


class ModelNames:
    """Models, weakly, each with the prefix of its names.

    A single model has none. With several, the prefix is the variable of the calling function, else the class, with a
    number where two have the same. A model that is part of another has the names that it has there.
    """

    def __init__(self) -> None:
        self._watched: list[_Watched] = []

    def add(self, model: torch.nn.Module, frame: FrameType | None = None) -> None:
        """Add a model; ``frame`` is where it was named, or was called from there."""
        models = [each for _, each in self.items()]
        if any(part is model for each in models for part in each.modules()):
            return
        parts = {id(part) for part in model.modules()}
        others = [each for each in self._watched if id(each.model()) not in parts and each.model() is not None]
        label = _variable(model, frame) or type(model).__name__
        self._watched = [*others, _Watched(weakref.ref(model), label)]
        if others:
            prefixes = numbered([each.label for each in self._watched])
            pairs = zip(self._watched, prefixes, strict=True)
            self._watched = [each._replace(prefix=prefix) for each, prefix in pairs]

    def items(self) -> list[tuple[str, torch.nn.Module]]:
        """The models that still exist, with their prefixes."""
        return [(prefix, model) for reference, _, prefix in self._watched if (model := reference()) is not None]


def numbered(labels: list[str]) -> list[str]:
    """The labels, from the second of the same name on with a number: ``net``, ``net_2``."""
    names: list[str] = []
    for label in labels:
        name, number = label, 1
        while name in names:
            number += 1
            name = f"{label}_{number}"
        names.append(name)
    return names


def _variable(model: torch.nn.Module, frame: FrameType | None) -> str:
    """The user's variable, or attribute of ``self``, that holds a model; empty where there is none."""
    caller = next(user_frames(frame), None)
    if caller is None:
        return ""
    variables = locals_of(caller, tidy=nobody_traces())
    found = next((name for name, value in variables.items() if value is model), "")
    if found or "self" not in variables:
        return found
    owner = variables["self"]
    attributes = plain.instance_dict(owner) or {}
    modules = attributes.get("_modules") if isinstance(owner, torch.nn.Module) else None
    return next((name for name, value in {**attributes, **(modules or {})}.items() if value is model), "")
