"""The function or operator that a frame was calling: its place in the source, read where Python tells columns."""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import FrameType
from typing import NamedTuple

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_BACKWARD = "run_backward"
"""What torch's Python calls for a backward pass; the operators in it have no frame."""


class RunningCall(NamedTuple):
    """Where an expression stands: lines from 1, columns in bytes of UTF-8."""

    file: str
    line: int
    last_line: int
    column: int
    end: int

    @classmethod
    def of(cls, frame: FrameType) -> RunningCall | None:
        """The expression that a frame is in; ``None`` before Python 3.11, which does not tell, and without columns."""
        positions = getattr(frame.f_code, "co_positions", None)
        if positions is None or frame.f_lasti < 0:
            return None
        line, last_line, column, end = next(islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
        if line is None or last_line is None or column is None or end is None:
            return None
        return cls(frame.f_code.co_filename, line, last_line, column, end)

    def name(self) -> str:
        """``softmax`` for ``F.softmax(x, -1)``, ``@`` for ``q @ k``; empty where the source cannot be read.

        A backward pass is named as one.
        """
        called = _name_of(_parsed(self._text()))
        return "the backward pass" if called == _BACKWARD else called

    def _text(self) -> str:
        lines = [linecache.getline(self.file, number).encode() for number in range(self.line, self.last_line + 1)]
        if not lines:
            return ""
        lines[-1] = lines[-1][: self.end]
        lines[0] = lines[0][self.column :]
        return b"".join(lines).decode(errors="replace")


def _parsed(text: str) -> ast.AST | None:
    for source in (f"({text}\n)", text):  # an expression of several lines; ``x += y`` is a statement
        try:
            (statement,) = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return statement.value if isinstance(statement, ast.Expr) else statement
    return None


def _name_of(node: ast.AST | None) -> str:
    if isinstance(node, ast.Call):
        called = node.func
        return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return _SYMBOLS.get(type(node.op), "")
    if isinstance(node, ast.Compare):
        return _SYMBOLS.get(type(node.ops[0]), "")
    return "indexing" if isinstance(node, ast.Subscript) else ""
