"""The user's own frames and lines, with text and qualified names, as torch reports them."""

from __future__ import annotations

import ast
import linecache
import os
import site
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.evidence import CodeLine
from tbmem.sources.program.ownership import is_user_file
from tbmem.sources.program.syntax import SourceCode, notebook_cell

_NAMES: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Add: ("add",),
    ast.Sub: ("sub", "rsub"),
    ast.Mult: ("mul",),
    ast.Div: ("div", "reciprocal"),
    ast.FloorDiv: ("floor_divide",),
    ast.Mod: ("remainder",),
    ast.MatMult: ("matmul",),
    ast.Pow: ("pow",),
    ast.USub: ("neg",),
    ast.Invert: ("bitwise_not",),
    ast.BitAnd: ("bitwise_and",),
    ast.BitOr: ("bitwise_or",),
    ast.BitXor: ("bitwise_xor",),
    ast.Gt: ("gt",),
    ast.GtE: ("ge",),
    ast.Lt: ("lt",),
    ast.LtE: ("le",),
    ast.Eq: ("eq",),
    ast.NotEq: ("ne",),
    ast.Subscript: ("index", "index_put", "select", "slice"),
}
"""Names of the operators that Python calls without reporting it, by how they are written."""
_SYNTAX = {name: kind for kind, names in _NAMES.items() for name in names}


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """What is known of a line on which Python calls an operator (``a * b``), which nothing reports."""

    operator: str  # the operator that ran, ``aten::mul``
    inside: int  # some line of the function
    before: int = 0  # line of the call before it in the same run of the function; 0 where there is none
    after: int = 0  # line of the call after it; 0 where there is none. In a loop it may stand above ``before``
    nth: int = 0  # how many such operators ran between the call before and this one


@dataclass(frozen=True, slots=True)
class Frame:
    """One of the user's functions on the stack."""

    file: str  # full path
    line: int  # line that was running; 0 where only ``call`` identifies it
    function: str
    call: OperatorCall | None = None  # what is known where the line is not


class UserLines:
    """Distinguishes the user's files from others, and reads them; remembers both."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._sources = SourceCode()
        self._lines: dict[Frame, CodeLine] = {}
        self._operator_lines: dict[Frame, int] = {}
        self._orders: dict[ast.AST, list[tuple[int, type[ast.AST]]]] = {}

    def file(self, name: str) -> str:
        """Full path of a user's file, which torch's profiler names without a prefix of ``sys.path``; else empty."""
        if name not in self._files:
            path = _full_path(name)
            # torch may report what is no file; a notebook's cells are in none
            is_users = is_user_file(path) and (path[:1] == "<" or os.path.isfile(path) or path in linecache.cache)
            self._files[name] = path if is_users else ""
        return self._files[name]

    def path_unless_plain(self, name: str) -> str:
        """Path of a file whose owner torch's short name (``transformers/trainer.py``) does not tell; else empty."""
        is_users = bool(self.file(name))
        if not name or is_users == (owner_of(name) is Owner.USER):
            return ""
        full = _full_path(name)
        return full if is_users == (owner_of(full) is Owner.USER) else f"<{name}>"

    def operator_line(self, frame: Frame) -> int:
        """The line of a frame of which only an operator's call is known; 0 where that does not identify it."""
        if frame.call is None:
            return frame.line
        if frame not in self._operator_lines:
            self._operator_lines[frame] = _line_of(self._order_around(frame.file, frame.call.inside), frame.call)
        return self._operator_lines[frame]

    def _order_around(self, file: str, line: int) -> Sequence[tuple[int, type[ast.AST]]]:
        """The calls and operators of the function around a line, or of the module itself."""
        source = self._sources.file(file)
        function = source.function_at(line)
        node = function.node if function is not None else source.tree
        if node not in self._orders:
            self._orders[node] = list(_order(node))
        return self._orders[node]

    def line(self, frame: Frame) -> CodeLine:
        """The source line of a frame."""
        if frame not in self._lines:
            source = self._sources.file(frame.file)
            line = frame.line or self.operator_line(frame)
            if not line and frame.call is not None:
                inside = source.function_at(frame.call.inside)
                line = inside.first if inside is not None else frame.call.inside
            around = source.function_at(line)
            name = around.name if around is not None else frame.function
            text = linecache.getline(frame.file, line).strip()
            self._lines[frame] = CodeLine(
                file=notebook_cell(frame.file) or frame.file, line=line, function=name, text=text
            )
        return self._lines[frame]


def _line_of(order: Sequence[tuple[int, type[ast.AST]]], call: OperatorCall) -> int:
    """The line on which an operator is written, of a function's calls and operators; 0 where that is not known."""
    if call.before and call.before == call.after:
        return call.before
    syntax = _SYNTAX.get(call.operator.rpartition("::")[2].rstrip("_"))
    if syntax is None:
        return 0
    calls = [index for index, (line, kind) in enumerate(order) if kind is ast.Call and line == call.before]
    begin = calls[-1] + 1 if calls else 0
    order = [*order[begin:], *order[:begin]]  # a loop goes from its end to its beginning
    calls = [index for index, (line, kind) in enumerate(order) if kind is ast.Call and line == call.after]
    lines = [line for line, kind in order[: calls[0] if calls else None] if kind is syntax]
    return lines[0] if len(set(lines)) == 1 else next(iter(lines[call.nth :]), 0)


def _order(function: ast.AST) -> Iterator[tuple[int, type[ast.AST]]]:
    """Line and kind of the calls and operators of a function, as they run where nothing branches."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        yield from _order(node)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.AugAssign)):
            yield node.lineno, type(node.op)
        elif isinstance(node, ast.Compare):
            yield from ((node.lineno, type(op)) for op in node.ops)
        elif isinstance(node, (ast.Subscript, ast.Call)):
            yield node.lineno, type(node)


def _full_path(name: str) -> str:
    if os.path.isabs(name) or name.startswith("<"):
        return name
    folders = [os.path.abspath(folder) for folder in (*sys.path, *site.getsitepackages())]
    paths = [path for path in (os.path.join(folder, name) for folder in folders) if os.path.isfile(path)]
    if len(set(paths)) > 1:
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        paths = [path for path in paths if path in loaded] or paths
    return next(iter(paths), os.path.abspath(name))
