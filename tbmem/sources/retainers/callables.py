"""Search for functions that become more: closures that wrap each other, callbacks that wait for the program's end."""

from __future__ import annotations

import ast
from functools import partial
from types import FunctionType

from tbmem.model.evidence import Contents, HolderKind
from tbmem.sources.program.ownership import plain_name
from tbmem.sources.program.syntax import called
from tbmem.sources.retainers.candidates import Candidate, SearchContext, not_under
from tbmem.sources.retainers.instances import holder_of
from tbmem.sources.retainers.object_counts import EXIT_CALLBACKS, ObjectCounts, ObjectTable, closure_key
from tbmem.sources.retainers.reachability import Traversal
from tbmem.sources.retainers.retained_size import BaselineObjects, address_of, tensor_bytes


def add_closures(context: SearchContext, counts: ObjectCounts, objects: ObjectTable, traversal: Traversal) -> None:
    """Note users' functions of which there are more and more closures, unless something known holds functions."""
    growing = counts.growing_classes()
    for code, closures in objects.closures().items():
        series = growing.get(closure_key(code))
        if series is None or FunctionType in context.explained:
            continue
        context.baseline = BaselineObjects(not_under(traversal, {id(one) for one in closures}))
        name = plain_name(closures[-1].__qualname__)
        holder = holder_of(context, HolderKind.CLOSURES, f"closures {name}()", name, closures, series)
        files = tuple(dict.fromkeys((code.co_filename, *context.files)))
        read = partial(context.sources.calls, files, partial(_makes, closures[-1].__qualname__))
        context.add(Candidate(closure_key(code), holder, read=read))


def _makes(qualname: str, call: ast.Call) -> bool:
    """Whether a call makes a closure: that of ``wrap()`` for ``wrap.<locals>.wrapped``."""
    return called(call) == qualname.partition(".<locals>")[0].rpartition(".")[2]


def add_exit_callbacks(
    context: SearchContext, counts: ObjectCounts, objects: ObjectTable, traversal: Traversal, old: set[tuple[int, int]]
) -> None:
    """Note that more and more functions are registered with ``atexit``, whose table only C can read.

    What one of them holds is taken to be its part of the tensors that have no name and are not among the ``old`` ones,
    given by the addresses of object and data.
    """
    series = counts.growing_classes().get(EXIT_CALLBACKS)
    if series is None or not traversal.complete:
        return
    nameless = [one for one in objects.tensors() if id(one) not in traversal.references]
    size = sum(tensor_bytes(one) for one in nameless if (id(one), address_of(one)) not in old)
    contents = Contents.TENSORS if size else Contents.OBJECTS
    holder = series.holder(HolderKind.CALLBACKS, "atexit's callbacks", "", size // series.growth, contents)
    context.add(Candidate(EXIT_CALLBACKS, holder, read=partial(context.sources.calls, context.files, _registers)))


def _registers(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("atexit.register", "register")
