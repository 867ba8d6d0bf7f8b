"""A name and its file go in; the lines of the source that add to it come out."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from tbmem.model.evidence import CodeLine
from tbmem.sources import plain
from tbmem.sources.usercode import is_user_file, plain_name

ADDING = frozenset(
    ("append", "appendleft", "extend", "extendleft", "add", "insert", "update", "setdefault", "put", "put_nowait")
    + ("push", "write", "register_hook", "add_param_group", "add_module", "register_module", "register_buffer")
)
"""Methods that make something longer."""
_REACHING = frozenset(("setdefault", "get", "pop", "__getitem__", "values", "items"))
"""Methods that give an element."""
_JOINING = frozenset(("heappush", "insort", "insort_left", "insort_right"))
Entry = tuple[str, ast.AST, "ast.AST | None"]
"""A function or a class: its qualified name, its node and the node around it."""
Search = Callable[[ast.stmt, "Handle"], bool]
"""Whether a statement does something with what a handle stands for."""
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_LARGEST = 3_000_000
"""Characters of a file that is still read."""


@dataclass(frozen=True)
class Handle:
    """What the source calls a thing: a variable or an attribute, and the keys behind it. Holds no object."""

    root: str = ""
    """Name of the variable, or of the attribute."""
    is_attribute: bool = False
    path: tuple[tuple[str, Any], ...] = ()
    """``("key", k)`` and ``("attr", name)`` behind it; a key of ``None`` is any."""
    files: tuple[str, ...] = ()
    """Where to look, likeliest first."""
    function_line: int = 0
    """First line of the function in which the variable lives; 0 for a whole file."""


class SourceCode:
    """Files of the user's, each read and parsed once."""

    def __init__(self) -> None:
        self._trees: dict[str, ast.Module | None] = {}
        self._found: dict[str, list[Entry]] = {}

    def tree(self, filename: str) -> ast.Module | None:
        """The syntax tree of a file; ``None`` where it cannot be read."""
        if filename not in self._trees:
            text = "".join(linecache.getlines(filename))
            try:
                self._trees[filename] = ast.parse(text) if text and len(text) < _LARGEST else None
            except (SyntaxError, ValueError, RecursionError):
                self._trees[filename] = None
        return self._trees[filename]

    def code_line(self, filename: str, line: int, function: str = "") -> CodeLine:
        """A line, or the first one of the statement that it is a part of."""
        statement = self._statement(filename, line)
        first = statement.lineno if statement is not None else line
        name = function or self.function_at(filename, first)
        return CodeLine(
            file=filename if filename.startswith("<") else os.path.abspath(filename),
            line=first,
            function=name,
            text=linecache.getline(filename, first).strip(),
        )

    def _statement(self, filename: str, line: int) -> ast.stmt | None:
        """The smallest statement around a line; of one with a body, only its head."""
        found: ast.stmt | None = None
        for node in ast.walk(self.tree(filename) or ast.Module([], [])):
            if isinstance(node, ast.stmt) and node.lineno <= line <= _last_line(node):
                found = node if found is None or node.lineno >= found.lineno else found
        return found

    def _functions(self, filename: str) -> list[Entry]:
        """Functions and classes of a file."""
        if filename in self._found:
            return self._found[filename]
        found: list[Entry] = []

        def visit(node: ast.AST, prefix: str, around: ast.AST | None) -> None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (*Functions, ast.ClassDef)):
                    found.append((prefix + child.name, child, around))
                    visit(child, f"{prefix}{child.name}.", child)
                elif isinstance(child, ast.Lambda):
                    found.append((prefix + "<lambda>", child, around))
                    visit(child, f"{prefix}<lambda>.", child)
                else:
                    visit(child, prefix, around)

        tree = self.tree(filename)
        if tree is not None:
            visit(tree, "", None)
        self._found[filename] = found
        return found

    def function_at(self, filename: str, line: int) -> str:
        """Qualified name of the innermost function around a line."""
        best = ""
        for name, node, _ in self._functions(filename):
            if isinstance(node, Functions) and node.lineno <= line <= (node.end_lineno or 0):
                best = name
        return best

    def function_node(self, filename: str, line: int, name: str = "") -> Entry | None:
        """The function whose code begins at a line (at its first decorator, if it has any)."""
        for entry in self._functions(filename):
            node = entry[1]
            if isinstance(node, ast.ClassDef):
                continue
            first = min([one.lineno for one in getattr(node, "decorator_list", ())] + [node.lineno])  # type: ignore[attr-defined]
            if line in (first, node.lineno) and (not name or entry[0].rpartition(".")[2] == name):  # type: ignore[attr-defined]
                return entry
        return None

    def binding_function(self, filename: str, line: int, name: str, variable: str) -> tuple[str, int] | None:
        """The function around another one in which a closure's variable lives: its name and first line."""
        entry = self.function_node(filename, line, name)
        by_node = {id(node): (full, node, around) for full, node, around in self._functions(filename)}
        while entry is not None and entry[2] is not None:
            entry = by_node.get(id(entry[2]))
            if entry is not None and isinstance(entry[1], Functions) and variable in _bound_names(entry[1]):
                return plain_name(entry[0]), entry[1].lineno
        return None

    def files_of(self, kind: type) -> tuple[str, ...]:
        """Users' files in which a class and its bases are defined."""
        files: dict[str, None] = {}
        for base in plain.mro(kind):
            for value in plain.class_attributes(base).values():
                function = getattr(value, "__func__", value) if type(value) in (staticmethod, classmethod) else value
                if type(function) is FunctionType and is_user_file(function.__code__.co_filename):
                    files[function.__code__.co_filename] = None
            module = sys.modules.get(plain.module_of(base))
            filename = getattr(module, "__dict__", {}).get("__file__")
            if type(filename) is str and is_user_file(filename):
                files[filename] = None
        return tuple(files)

    def adding_lines(self, handle: Handle, more_files: Iterable[str] = ()) -> list[CodeLine]:
        """The lines that add to what a handle stands for, likeliest first."""
        return self._lines((adds, _calls, _passes), handle, more_files)

    def filling_lines(self, handle: Handle, more_files: Iterable[str] = ()) -> list[CodeLine]:
        """The lines that write into a buffer, likeliest first: most of its methods move in it or read it."""
        return self._lines((adds, _passes), handle, more_files)

    def _lines(self, searches: Iterable[Search], handle: Handle, more_files: Iterable[str]) -> list[CodeLine]:
        for filename in (*handle.files, *(one for one in more_files if one not in handle.files)):
            within = self.scope(filename, handle)
            for search in searches:
                lines = [one.lineno for one in statements(within) if search(one, handle)]
                if lines:
                    return [self.code_line(filename, line) for line in dict.fromkeys(lines)]
        return []

    def assignments(self, handle: Handle, more_files: Iterable[str] = ()) -> list[tuple[CodeLine, bool]]:
        """The lines that give a variable a new value, and whether the old one is in it."""
        for filename in (*handle.files, *(one for one in more_files if one not in handle.files)):
            found = [
                (self.code_line(filename, one.lineno), uses_old_value(one, handle))
                for one in statements(self.scope(filename, handle))
                if any(matches(target, handle) for target in _targets(one))
            ]
            if found:
                return found
        return []

    def is_cumulative(self, line: CodeLine, handle: Handle) -> bool:
        """Whether a line gives a variable a value that is made of its old one."""
        statement = self._statement(line.file, line.line)
        return statement is not None and uses_old_value(statement, handle)

    def calls(self, filename: str, wanted: Callable[[ast.Call], bool]) -> list[CodeLine]:
        """Statements of a file with a call that a function accepts."""
        lines = [
            one.lineno
            for one in statements([self.tree(filename) or ast.Module([], [])])
            if any(isinstance(node, ast.Call) and wanted(node) for node in own_nodes(one))
        ]
        return [self.code_line(filename, line) for line in dict.fromkeys(lines)]

    def attribute_lines(self, filename: str, names: Iterable[str]) -> list[CodeLine]:
        """Statements of a file that set an attribute with one of some names."""
        wanted = set(names)
        lines = [
            one.lineno
            for one in statements([self.tree(filename) or ast.Module([], [])])
            if any(isinstance(target, ast.Attribute) and target.attr in wanted for target in _targets(one))
        ]
        return [self.code_line(filename, line) for line in dict.fromkeys(lines)]

    def scope(self, filename: str, handle: Handle) -> list[ast.AST]:
        """The function in which a handle's variable lives, or a whole file."""
        if handle.function_line:
            entry = self.function_node(filename, handle.function_line)
            if entry is not None:
                return [entry[1]]
        return [self.tree(filename) or ast.Module([], [])]


def definition_line(function: FunctionType | None, sources: SourceCode) -> CodeLine | None:
    """The line with a function's ``def``, past its decorators."""
    if function is None:
        return None
    code = function.__code__
    entry = sources.function_node(code.co_filename, code.co_firstlineno, code.co_name)
    line = entry[1].lineno if entry is not None else code.co_firstlineno  # type: ignore[attr-defined]
    return sources.code_line(code.co_filename, line, plain_name(function.__qualname__))


def called(call: ast.Call) -> str:
    """Name of the function or method that a call calls."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def creates_graph(call: ast.Call) -> bool:
    """Whether a call is made with ``create_graph=True``."""
    return any(word.arg == "create_graph" and getattr(word.value, "value", None) is True for word in call.keywords)


def _last_line(node: ast.stmt) -> int:
    """Last line of a statement, or of its head where it has a body."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return max(node.lineno, int(body[0].lineno) - 1)
    return node.end_lineno or node.lineno


def statements(scopes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """All statements of some functions or files."""
    for scope in scopes:
        for node in ast.walk(scope):
            if isinstance(node, ast.stmt):
                yield node


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements inside it."""
    stack = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))


def _bound_names(node: ast.AST) -> set[str]:
    """Variables that a function gives a value to; arguments too."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.arg):
            found.add(child.arg)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            found.add(child.id)
        elif isinstance(child, (*Functions, ast.ClassDef)):
            found.add(child.name)
    return found


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", None), ast.Store):
                yield node


def adds(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement calls a method that adds, sets an element, or adds up."""
    if isinstance(statement, ast.AugAssign) and matches(statement.target, handle):
        return True
    if isinstance(statement, ast.Assign) and uses_old_value(statement, handle):
        return True
    if any(isinstance(target, ast.Subscript) and matches(target.value, handle) for target in _targets(statement)):
        return True
    return any(is_adding_call(node, handle) for node in own_nodes(statement))


def is_adding_call(node: ast.AST, handle: Handle) -> bool:
    """Whether an expression calls what makes something longer."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
        return matches(node.func.value, handle)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _JOINING and bool(node.args) and matches(node.args[0], handle)


def _calls(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement calls any method of it, or of what it is a part of (``queue.put`` for ``queue.queue``)."""
    for node in own_nodes(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            shorter = handle
            while True:
                if matches(node.func.value, shorter):
                    return True
                if not shorter.path:
                    break
                shorter = _shortened(shorter)
    return False


def _shortened(handle: Handle) -> Handle:
    return replace(handle, path=handle.path[:-1])


def _passes(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement gives it to a function."""
    return any(
        isinstance(node, ast.Call) and any(matches(one, handle) for one in (*node.args, *_values(node)))
        for node in own_nodes(statement)
    )


def _values(node: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in node.keywords]


def uses_old_value(statement: ast.AST, handle: Handle) -> bool:
    """Whether a statement gives something a value that is made of its old one."""
    if isinstance(statement, ast.AugAssign):
        return matches(statement.target, handle)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    if not any(matches(target, handle) for target in _targets(statement)):
        return False
    return any(isinstance(node, ast.expr) and matches(node, handle) for node in ast.walk(statement.value))


def matches(node: ast.AST, handle: Handle) -> bool:
    """Whether an expression stands for what a handle means."""
    for kind, label in reversed(handle.path):
        inner = _owner_of_element(node, label) if kind != "attr" else _owner_of_attribute(node, label)
        if inner is None:
            return False
        node = inner
    if handle.is_attribute:
        return isinstance(node, ast.Attribute) and node.attr == handle.root
    return isinstance(node, ast.Name) and node.id == handle.root


def _owner_of_attribute(node: ast.AST, name: str) -> ast.AST | None:
    return node.value if isinstance(node, ast.Attribute) and node.attr == name else None


def _owner_of_element(node: ast.AST, key: Any) -> ast.AST | None:
    """``x`` of ``x[key]``, ``x[any]`` or ``x.setdefault(...)``."""
    if isinstance(node, ast.Subscript):
        index = node.slice
        is_other = isinstance(index, ast.Constant) and key is not None and index.value != key
        return None if is_other else node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REACHING:
        return node.func.value
    return None
