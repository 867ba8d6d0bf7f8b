"""Samples of a container's elements, held weakly, which tell whether it has been refilled since."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from tbmem.interruption import raise_interruption
from tbmem.sources.program import introspection as plain

_PARTS = 4  # parts of an element that is a tuple, a list or a dict


class ElementSamples:
    """The first, the middle and the last element of a container at one observation. Keeps none of them alive."""

    def __init__(self, container: Any) -> None:
        found = (_weakly(element) for element in _spread(container))
        self._elements = [element for element in found if element is not None]

    @property
    def are_gone(self) -> bool:
        """Whether the elements have ceased to exist: the container keeps nothing of that observation.

        ``False`` where that cannot be known: numbers and texts cannot be held weakly, and something else may hold an
        element that the container has dropped.
        """
        return bool(self._elements) and all(element() is None for element in self._elements)

    def are_dropped_by(self, others: ElementSamples) -> bool:
        """Whether none of the elements is among those of another container, as of one that a variable has got since.

        They may exist all the same: each rollout's list in a buffer of rollouts. What is made longer as a copy keeps
        its first element, or its last.
        """
        kept = {id(element()) for element in others._elements}
        return bool(self._elements) and not any(id(element()) in kept for element in self._elements)


def _spread(container: Any) -> list[Any]:
    kinds = plain.mro(type(container))
    try:
        if list in kinds or tuple in kinds:
            read = list.__getitem__ if list in kinds else tuple.__getitem__
            length = list.__len__(container) if list in kinds else tuple.__len__(container)
            return [read(container, at) for at in {0, length // 2, length - 1}] if length else []
        if dict in kinds:
            values = dict.values(container)
            return [*itertools.islice(values, 1), *itertools.islice(reversed(values), 1)]
        if deque in kinds:
            first = itertools.islice(deque.__iter__(container), 1)
            return [*first, *itertools.islice(deque.__reversed__(container), 1)]
    except (RuntimeError, IndexError) as error:  # another thread has changed it
        raise_interruption(error)
        return []
    return []


def _weakly(element: Any) -> weakref.ref[Any] | None:
    """A weak reference to an element, or to the first of its parts that can be held so."""
    for one in (element, *_parts(element)):
        # torch.utils.swap_tensors() refuses tensors with weak references; it is used on parameters
        if plain.is_a(one, type) or plain.is_a(one, torch.nn.Parameter):
            continue
        try:
            return weakref.ref(one)
        except TypeError:
            continue
    return None


def _parts(element: Any) -> Iterator[Any]:
    kind = type(element)
    if kind in (tuple, list):
        yield from element[:_PARTS]
    elif kind is dict:
        yield from itertools.islice(element.values(), _PARTS)
