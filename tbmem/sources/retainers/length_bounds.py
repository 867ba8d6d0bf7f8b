"""Bounds of containers that the user's own code enforces: ``if len(x) < n: x.append(y)``, as in replay buffers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from tbmem.sources.program import introspection as plain
from tbmem.sources.program import syntax
from tbmem.sources.program.syntax import Handle, SourceCode, SourceFile
from tbmem.sources.retainers.reachability import Reference, ReferenceKind

_REMOVING = frozenset(("pop", "popleft", "popitem", "clear", "remove"))  # methods that make something shorter


def written_bound(reference: Reference, handle: Handle, sources: SourceCode) -> int | None:
    """The largest length that the source allows; ``None`` where nothing bounds it, or not by a number known now.

    What adds to the container stands in an ``if len(x) < n`` or near an ``if len(x) > n`` that takes out.
    """
    kinds = plain.mro(type(reference.value))
    length = plain.length_function(type(reference.value))
    if not handle.root or length is None:
        return None
    for filename in handle.files:
        within = sources.scope(filename, handle)
        adding = [statement for statement in syntax.statements(within) if _lengthens(statement, handle, list in kinds)]
        if adding:
            checks = [_check(statement, handle, sources.file(filename)) for statement in adding]
            bounds = [_value(*check, reference, filename) for check in checks if check is not None]
            known = [bound for bound in bounds if bound is not None and bound >= length(reference.value)]
            return max(known) if len(known) == len(adding) else None
    return None


def _value(container: ast.expr, limit: ast.expr, reference: Reference, filename: str) -> int | None:
    value: Any = None
    if isinstance(limit, ast.Constant):
        value = limit.value
    elif isinstance(limit, ast.Attribute):
        is_beside = isinstance(container, ast.Attribute) and ast.dump(limit.value) == ast.dump(container.value)
        value = _attribute(reference, limit.attr) if is_beside else None
    elif isinstance(limit, ast.Name):
        value = next((names[limit.id] for names in _variables(reference, filename) if limit.id in names), None)
    return value if type(value) is int else None


def _attribute(reference: Reference, name: str) -> Any:
    """An attribute beside a container: of the object that has the container, or of its class."""
    if reference.kind not in (ReferenceKind.ATTRIBUTE, ReferenceKind.CLASS_ATTRIBUTE):
        return None
    owner = reference.holder
    kinds = plain.mro(owner if type in plain.mro(type(owner)) else type(owner))
    spaces = [plain.instance_dict(owner) or {}, *(plain.class_attributes(kind) for kind in kinds)]
    return next((names[name] for names in spaces if name in names), None)


def _variables(reference: Reference, filename: str) -> Iterator[dict[str, Any]]:
    """Variables beside the container's: those of its closure, then those of the file's module."""
    owner = reference.holder
    if type(owner) is FunctionType:
        cells = zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=False)
        yield {name: plain.cell_value(cell) for name, cell in cells}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and module.__dict__.get("__file__") == filename:
            yield module.__dict__


def _lengthens(statement: ast.stmt, handle: Handle, is_list: bool) -> bool:
    """Whether a statement makes a container longer; a list's element is only replaced, and a slice is shorter."""
    if _cuts(statement, handle):
        return False
    if not is_list or isinstance(statement, ast.AugAssign) or syntax.uses_old_value(statement, handle):
        return syntax.adds(statement, handle)
    return any(syntax.is_adding_call(node, handle) for node in syntax.own_nodes(statement))


def _cuts(statement: ast.AST, handle: Handle) -> bool:
    """Whether only a slice of a container is kept: ``x = x[-100:]``."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
        return False
    is_slice = isinstance(statement.value.slice, ast.Slice) and syntax.matches(statement.value.value, handle)
    return is_slice and any(syntax.matches(target, handle) for target in statement.targets)


def _check(adding: ast.stmt, handle: Handle, source: SourceFile) -> tuple[ast.expr, ast.expr] | None:
    function = source.function_at(adding.lineno)
    nodes = [] if function is None else [one for one in ast.walk(function.node) if isinstance(one, (ast.If, ast.While))]
    for node in nodes:
        compared = _compared(node.test, handle)
        if compared is None:
            continue
        container, limit, is_below = compared
        inside = [part for statement in node.body for part in ast.walk(statement)]
        otherwise = [part for statement in node.orelse for part in ast.walk(statement)]
        is_bounded = any(part is adding for part in (inside if is_below else otherwise))
        if is_bounded or (not is_below and any(_takes_out(part, handle) for part in inside)):
            return container, limit
    return None


def _compared(test: ast.expr, handle: Handle) -> tuple[ast.expr, ast.expr, bool] | None:
    """The container, what its length is compared with, and whether the length is the smaller one."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right, operator = test.left, test.comparators[0], test.ops[0]
    is_turned = _is_length(right, handle)
    if is_turned:
        left, right = right, left
    if not isinstance(left, ast.Call) or not _is_length(left, handle):
        return None
    if isinstance(operator, (ast.Lt, ast.LtE)):
        return left.args[0], right, not is_turned
    if isinstance(operator, (ast.Gt, ast.GtE)):
        return left.args[0], right, is_turned
    return (left.args[0], right, False) if isinstance(operator, ast.Eq) else None


def _is_length(node: ast.AST, handle: Handle) -> bool:
    if not isinstance(node, ast.Call) or syntax.called(node) != "len":
        return False
    return len(node.args) == 1 and syntax.matches(node.args[0], handle)


def _takes_out(node: ast.AST, handle: Handle) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _REMOVING and syntax.matches(node.func.value, handle)
    if isinstance(node, ast.Delete):
        return any(isinstance(one, ast.Subscript) and syntax.matches(one.value, handle) for one in node.targets)
    return _cuts(node, handle)
