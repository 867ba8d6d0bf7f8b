"""The code of the data sets that this process's DataLoader workers run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from tbmem.model.evidence import CodeLine, WorkerCode
from tbmem.sources.program import introspection as plain
from tbmem.sources.program import tracked_objects
from tbmem.sources.program.ownership import plain_name
from tbmem.sources.program.syntax import Handle, SourceCode, adds, statements

_METHODS = ("__getitems__", "__getitem__", "__iter__")
"""What a worker calls of a data set, the first that there is."""
_ONCE = ("__init__", "__new__", "__setstate__", "__getstate__")
"""Methods that are not called for each element."""
_CONTAINERS = {list, dict, set, deque}


def code_in_workers() -> WorkerCode:
    """The methods that workers call now, and the lines that add to what their data sets keep.

    It looks at all objects that Python's collector knows: call it only where there is something to tell.
    """
    (iterators,) = tracked_objects.live_objects(_MultiProcessingDataLoaderIter)
    data_sets = [_innermost(plain.instance_dict(one), "_dataset") for one in iterators]
    by_kind = {type(one): one for one in data_sets}
    called = (next((each for name in _METHODS if (each := _method(kind, name))), None) for kind in by_kind)
    sources = SourceCode()
    additions = [line for data_set in by_kind.values() for line in _additions(data_set, sources)]
    return WorkerCode(
        methods=tuple(_line_of(method, method.__code__.co_firstlineno, sources) for method in called if method),
        additions=tuple(dict.fromkeys(additions)),
    )


def _line_of(method: FunctionType, line: int, sources: SourceCode) -> CodeLine:
    return sources.code_line(method.__code__.co_filename, line, plain_name(method.__qualname__))


def _additions(data_set: Any, sources: SourceCode) -> Iterator[CodeLine]:
    """Lines in the methods of a data set's class that add to a container without a bound."""
    names = list(_kept_containers(data_set))
    for kind in plain.mro(type(data_set)) if names else ():
        for method in () if _is_torchs(kind) else plain.class_attributes(kind).values():
            if type(method) is FunctionType and method.__name__ not in _ONCE:
                yield from _adding(method, names, sources)


def _kept_containers(data_set: Any) -> Iterator[str]:
    """Names of the attributes of a data set, or of its class, that can become longer for ever."""
    of_classes = [plain.class_attributes(kind) for kind in plain.mro(type(data_set)) if not _is_torchs(kind)]
    for name, value in (pair for each in (plain.instance_dict(data_set) or {}, *of_classes) for pair in each.items()):
        if not _CONTAINERS.isdisjoint(plain.mro(type(value))) and plain.bound_of(value) is None:
            yield name


def _adding(method: FunctionType, names: Iterable[str], sources: SourceCode) -> Iterator[CodeLine]:
    definition = sources.file(method.__code__.co_filename).function_from(method.__code__.co_firstlineno)
    if definition is not None:
        for handle in (Handle(name, is_attribute=True) for name in names):
            found = [one.lineno for one in statements(definition.node) if adds(one, handle)]
            yield from (_line_of(method, line, sources) for line in found)


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
