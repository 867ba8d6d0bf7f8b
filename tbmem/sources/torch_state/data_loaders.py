"""The data sets whose code runs in this process's DataLoader workers."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from tbmem.model.evidence import CodeLine
from tbmem.sources.program import introspection as plain
from tbmem.sources.program import tracked_objects
from tbmem.sources.program.ownership import plain_name
from tbmem.sources.program.syntax import SourceCode

_METHODS = ("__getitems__", "__getitem__", "__iter__")
"""What a worker calls of a data set, the first that there is."""


def methods_in_workers() -> tuple[CodeLine, ...]:
    """The definitions of the methods that workers call now, one for each data set.

    It looks at all objects that Python's collector knows: call it only where there is something to tell.
    """
    (iterators,) = tracked_objects.live_objects(_MultiProcessingDataLoaderIter)
    kinds = dict.fromkeys(type(_innermost(plain.instance_dict(one), "_dataset")) for one in iterators)
    methods = (next((each for name in _METHODS if (each := _method(kind, name))), None) for kind in kinds)
    sources = SourceCode()
    return tuple(
        sources.code_line(method.__code__.co_filename, method.__code__.co_firstlineno, plain_name(method.__qualname__))
        for method in methods
        if method is not None
    )


def _innermost(attributes: dict[str, Any] | None, name: str) -> Any:
    """The data set of a loader; of one of torch's (``Subset``) that which it selects from."""
    data = (attributes or {}).get(name)
    inner = plain.instance_dict(data) if _is_torchs(type(data)) else None
    return _innermost(inner, "dataset") if inner is not None and "dataset" in inner else data


def _method(kind: type, name: str) -> FunctionType | None:
    """A method that a class has from the user: those of torch's own classes call another data set's."""
    found = (plain.class_attributes(each).get(name) for each in plain.mro(kind) if not _is_torchs(each))
    return next((method for method in found if type(method) is FunctionType), None)


def _is_torchs(kind: type) -> bool:
    return plain.module_of(kind).partition(".")[0] in ("torch", "builtins", "typing")
