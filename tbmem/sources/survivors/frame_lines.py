"""The user's own frames and lines, with text and qualified names, as torch reports them."""

from __future__ import annotations

import ast
import linecache
import os
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.evidence import CodeLine
from tbmem.sources.program.ownership import is_user_file
from tbmem.sources.program.syntax import SourceCode, SourceFile

_SYNTAX: dict[str, type[ast.AST]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "rsub": ast.Sub,
    "mul": ast.Mult,
    "div": ast.Div,
    "reciprocal": ast.Div,
    "floor_divide": ast.FloorDiv,
    "remainder": ast.Mod,
    "matmul": ast.MatMult,
    "pow": ast.Pow,
    "neg": ast.USub,
    "bitwise_not": ast.Invert,
    "bitwise_and": ast.BitAnd,
    "bitwise_or": ast.BitOr,
    "bitwise_xor": ast.BitXor,
    "gt": ast.Gt,
    "ge": ast.GtE,
    "lt": ast.Lt,
    "le": ast.LtE,
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "index": ast.Subscript,
    "index_put": ast.Subscript,
    "select": ast.Subscript,
    "slice": ast.Subscript,
}
"""Operators that Python calls without reporting it, and how they are written."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """What is known of a line on which Python calls an operator (``a * b``), which nothing reports.

    Args:
        operator: The operator that ran, ``aten::mul``.
        inside: Some line of the function.
        before: Line of the call before it in the same run of the function; 0 where there is none.
        after: Line of the call after it; 0 where there is none. In a loop it may stand above ``before``.
        nth: How many such operators ran between the call before and this one.
    """

    operator: str
    inside: int
    before: int = 0
    after: int = 0
    nth: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One of the user's functions on the stack.

    Args:
        file: Full path.
        line: Line that was running; 0 where only ``call`` identifies it.
        function: Its plain name.
        call: What is known where the line is not.
    """

    file: str
    line: int
    function: str
    call: OperatorCall | None = None


class UserLines:
    """Distinguishes the user's files from others, and reads them.

    Paths are remembered for as long as this object lives.
    """

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._sources = SourceCode()
        self._lines: dict[Frame, CodeLine] = {}

    def file(self, name: str) -> str:
        """Full path of a user's file.

        Args:
            name: As torch's profiler reports it, without any prefix that is on ``sys.path``.

        Returns:
            The path; empty for a file of Python, of torch, of an installed package, of tbmem, or of a compiler.
        """
        path = self._files.get(name)
        if path is None:
            full = _full_path(name)
            path = self._files[name] = full if _is_users(full) else ""
        return path

    def path_unless_plain(self, name: str) -> str:
        """Path that identifies a file's owner where torch's short name does not; empty where it does.

        ``transformers/trainer.py`` may be anybody's: the folder that it is installed in has been removed.
        """
        is_users = bool(self.file(name))
        if not name or is_users == (owner_of(name) is Owner.USER):
            return ""
        full = _full_path(name)
        return full if is_users == (owner_of(full) is Owner.USER) else f"<{name}>"

    def operator_line(self, frame: Frame) -> int:
        """The line of a frame of which only an operator's call is known; 0 where that does not identify it."""
        return _line_of(self._sources.file(frame.file), frame.call) if frame.call is not None else frame.line

    def line(self, frame: Frame) -> CodeLine:
        """The source line of a frame."""
        line = self._lines.get(frame)
        if line is None:
            line = self._lines[frame] = self._read(frame)
        return line

    def _read(self, frame: Frame) -> CodeLine:
        source = self._sources.file(frame.file)
        line = frame.line or self.operator_line(frame)
        if not line and frame.call is not None:
            inside = source.function_at(frame.call.inside)
            line = inside.first if inside is not None else frame.call.inside
        around = source.function_at(line)
        name = around.name if around is not None else frame.function
        text = linecache.getline(frame.file, line).strip()
        return CodeLine(file=frame.file, line=line, function=name, text=text)


def _line_of(source: SourceFile, call: OperatorCall) -> int:
    """The line on which an operator is written; 0 where that is not known."""
    if call.before and call.before == call.after:
        return call.before
    syntax = _SYNTAX.get(call.operator.rpartition("::")[2].rstrip("_"))
    if syntax is None:
        return 0
    function = source.function_at(call.inside)
    order = list(_order(function.node if function is not None else source.tree))
    calls = [index for index, (line, kind) in enumerate(order) if kind is ast.Call and line == call.before]
    begin = calls[-1] + 1 if calls else 0
    order = order[begin:] + order[:begin]  # a loop goes from its end to its beginning
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


def _is_users(path: str) -> bool:
    """Whether a name that torch reports is a user's file: it may be no file at all."""
    if not is_user_file(path):
        return False
    # a notebook's cells are in no file
    return path.startswith("<") or os.path.isfile(path) or path in linecache.cache


def _full_path(name: str) -> str:
    """A path that torch has made shorter, in full."""
    if os.path.isabs(name) or name.startswith("<"):
        return name
    folders = [os.path.abspath(folder) for folder in (*sys.path, *site.getsitepackages())]
    paths = [path for path in (os.path.join(folder, name) for folder in folders) if os.path.isfile(path)]
    loaded = [path for path in paths if _is_loaded(path)] if len(set(paths)) > 1 else paths
    return next(iter(loaded or paths), os.path.abspath(name))


def _is_loaded(path: str) -> bool:
    return any(getattr(module, "__file__", None) == path for module in list(sys.modules.values()))
