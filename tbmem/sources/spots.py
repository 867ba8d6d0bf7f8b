"""A place goes in; what reads its value again, in a frame that is running, comes out."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

from tbmem.sources import plain
from tbmem.sources.places import Place, Step
from tbmem.sources.probes import Spot
from tbmem.sources.usercode import local_of


def spot_of(place: Place) -> Spot:
    """Where a place is, to be read in whatever frame is running."""
    label, owner = place.label, place.owner
    if not isinstance(owner, Place):
        code, filename = owner.code, owner.module
        if code is not None and place.step is not Step.GLOBAL:
            return Spot(None, lambda _, frame: local_of(frame, label) if frame.f_code is code else None)
        filename = code.co_filename if code is not None else filename
        return Spot(None, lambda _, frame: frame.f_globals.get(label) if frame.f_code.co_filename == filename else None)
    held = owner.value
    kinds = plain.mro(type(held))
    if tuple in kinds:
        outer = spot_of(owner)
        at = plain.fields_of(held).index(label) if place.step is Step.ATTRIBUTE else label
        return Spot(None, lambda _, frame: _item(outer.value(frame), at))
    if dict in kinds and place.step is Step.KEY:
        return Spot(held, lambda held, _: dict.get(held, label))
    if list in kinds and place.step is Step.ITEM:
        return Spot(held, lambda held, _: _item(held, label))
    if place.step is Step.CLOSED and type(held) is FunctionType:
        cell = dict(zip(held.__code__.co_freevars, held.__closure__ or (), strict=False)).get(label)
        return Spot(cell, lambda cell, _: plain.cell_value(cell) if cell is not None else None)
    return Spot(held, lambda held, _: _attribute(held, label) if held is not None else None)


def _item(value: Any, label: Any) -> Any:
    try:
        return (list if plain.is_a(value, list) else tuple).__getitem__(value, label)
    except (IndexError, TypeError):
        return None


def _attribute(held: Any, label: str) -> Any:
    if plain.is_a(held, torch.Tensor) and label == "grad":
        return held.grad
    if type in plain.mro(type(held)):
        return plain.class_attributes(held).get(label)
    names = plain.instance_dict(held)
    if names is not None and label in names:
        return names[label]
    return dict(plain.slot_values(held)).get(label)
