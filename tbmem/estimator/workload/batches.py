"""How a factory's batch reaches its model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_model(model: nn.Module, batch: Any, *, has_loss: bool = False) -> Any:
    """Call a model with a batch.

    A mapping is passed by keyword, a tuple or list by position, anything else as the only argument. The last element
    of a tuple is passed by keyword if it is a mapping whose keys are parameters that the other elements leave.

    Args:
        model: The model; ``forward`` is looked at for its parameters.
        batch: As the factory returns it, on the device.
        has_loss: Whether a loss gets the batch as well: what ``forward`` has no parameter for is then left to it, such
            as the targets in ``(inputs, targets)``.
    """
    accepted = _parameters(model)
    if isinstance(batch, Mapping):
        return model(**_known(batch, accepted) if has_loss else batch)
    if not isinstance(batch, (tuple, list)):
        return model(batch)
    positions, keywords = list(batch), {}
    if positions and isinstance(positions[-1], Mapping) and _are_keywords(positions[-1], len(positions) - 1, accepted):
        keywords = dict(positions.pop())
    if has_loss:
        positions = positions[: _most(accepted)]
    return model(*positions, **keywords)


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of a model's ``forward``, or of a stage that is a function; ``None`` without a signature."""
    try:
        return inspect.signature(getattr(model, "forward", model)).parameters
    except (TypeError, ValueError):
        return None


def _known(batch: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter] | None) -> Mapping[str, Any]:
    if accepted is None or any(each.kind is each.VAR_KEYWORD for each in accepted.values()):
        return batch
    return {key: value for key, value in batch.items() if key in accepted}


def _are_keywords(last: Mapping[Any, Any], before: int, accepted: Mapping[str, inspect.Parameter] | None) -> bool:
    """Whether all keys of a mapping are parameters behind the first ``before`` ones."""
    by_position = [name for name, each in (accepted or {}).items() if each.kind in _BY_POSITION]
    free = set(accepted or ()) - set(by_position[:before])
    return bool(last) and free.issuperset(last)


def _most(accepted: Mapping[str, inspect.Parameter] | None) -> int | None:
    """How many arguments are taken by position; ``None`` for any number."""
    if accepted is None or any(each.kind is each.VAR_POSITIONAL for each in accepted.values()):
        return None
    return sum(each.kind in _BY_POSITION for each in accepted.values())
