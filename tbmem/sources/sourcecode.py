"""A name and its file go in; the lines of the source that add to it come out."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_TAKING = frozenset(("pop", "popleft", "popitem", "clear", "remove"))
"""Methods that make something shorter."""
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


@dataclass(frozen=True)
class LengthCheck:
    """A comparison of a container's length by which the source keeps it from growing on."""

    container: ast.expr
    limit: ast.expr
    """What the length is compared with."""
    file: str


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
        """The function around another one in which a closure's variable lives: its name and first line.

        Args:
            filename: Of the inner function.
            line: Its first line.
            name: Its name.
            variable: The free variable.
        """
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
        """The lines that add to what a handle stands for, likeliest first.

        Args:
            handle: From a name.
            more_files: Files to look in when its own have no such line.
        """
        return self._lines((_adds, _calls, _passes), handle, more_files)

    def length_checks(self, handle: Handle, is_list: bool) -> list[LengthCheck]:
        """What keeps a container from growing, wherever the source adds to it; empty where it may grow freely.

        An ``if len(x) < n`` around the line that adds, or an ``if len(x) > n`` in the same function that takes out.

        Args:
            handle: From a name.
            is_list: Setting an element adds nothing.
        """
        for filename in handle.files:
            scope = self._scope(filename, handle)
            functions = [node for one in scope for node in ast.walk(one) if isinstance(node, (*Functions, ast.Lambda))]
            adding = [one for one in _statements(scope) if _lengthens(one, handle, is_list)]
            if adding:
                checks = [_check(one, handle, functions) for one in adding]
                kept = [LengthCheck(*check, filename) for check in checks if check is not None]
                return kept if len(kept) == len(adding) else []
        return []

    def filling_lines(self, handle: Handle, more_files: Iterable[str] = ()) -> list[CodeLine]:
        """The lines that write into a buffer, likeliest first: most of its methods move in it or read it.

        Args:
            handle: From a name.
            more_files: Files to look in when its own have no such line.
        """
        return self._lines((_adds, _passes), handle, more_files)

    def _lines(self, searches: Iterable[Search], handle: Handle, more_files: Iterable[str]) -> list[CodeLine]:
        for filename in (*handle.files, *(one for one in more_files if one not in handle.files)):
            scope = self._scope(filename, handle)
            for search in searches:
                lines = [one.lineno for one in _statements(scope) if search(one, handle)]
                if lines:
                    return [self.code_line(filename, line) for line in dict.fromkeys(lines)]
        return []

    def assignments(self, handle: Handle, more_files: Iterable[str] = ()) -> list[tuple[CodeLine, bool]]:
        """The lines that give a variable a new value, and whether the old one is in it.

        Args:
            handle: From a name.
            more_files: Files to look in when its own have no such line.
        """
        for filename in (*handle.files, *(one for one in more_files if one not in handle.files)):
            found = [
                (self.code_line(filename, one.lineno), _is_cumulative(one, handle))
                for one in _statements(self._scope(filename, handle))
                if any(_matches(target, handle) for target in _targets(one))
            ]
            if found:
                return found
        return []

    def is_cumulative(self, line: CodeLine, handle: Handle) -> bool:
        """Whether a line gives a variable a value that is made of its old one."""
        statement = self._statement(line.file, line.line)
        return statement is not None and _is_cumulative(statement, handle)

    def calls(self, filename: str, wanted: Callable[[ast.Call], bool]) -> list[CodeLine]:
        """Statements of a file with a call that a function accepts."""
        lines = [
            one.lineno
            for one in _statements([self.tree(filename) or ast.Module([], [])])
            if any(isinstance(node, ast.Call) and wanted(node) for node in _own_nodes(one))
        ]
        return [self.code_line(filename, line) for line in dict.fromkeys(lines)]

    def attribute_lines(self, filename: str, names: Iterable[str]) -> list[CodeLine]:
        """Statements of a file that set an attribute with one of some names."""
        wanted = set(names)
        lines = [
            one.lineno
            for one in _statements([self.tree(filename) or ast.Module([], [])])
            if any(isinstance(target, ast.Attribute) and target.attr in wanted for target in _targets(one))
        ]
        return [self.code_line(filename, line) for line in dict.fromkeys(lines)]

    def _scope(self, filename: str, handle: Handle) -> list[ast.AST]:
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


def _statements(scopes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    for scope in scopes:
        for node in ast.walk(scope):
            if isinstance(node, ast.stmt):
                yield node


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
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


def _adds(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement calls a method that adds, sets an element, or adds up."""
    if isinstance(statement, ast.AugAssign) and _matches(statement.target, handle):
        return True
    if isinstance(statement, ast.Assign) and _is_cumulative(statement, handle):
        return True
    if any(isinstance(target, ast.Subscript) and _matches(target.value, handle) for target in _targets(statement)):
        return True
    return any(_is_adding_call(node, handle) for node in _own_nodes(statement))


def _is_adding_call(node: ast.AST, handle: Handle) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
        return _matches(node.func.value, handle)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _JOINING and bool(node.args) and _matches(node.args[0], handle)


def _calls(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement calls any method of it, or of what it is a part of (``queue.put`` for ``queue.queue``)."""
    for node in _own_nodes(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            shorter = handle
            while True:
                if _matches(node.func.value, shorter):
                    return True
                if not shorter.path:
                    break
                shorter = _shortened(shorter)
    return False


def _lengthens(statement: ast.stmt, handle: Handle, is_list: bool) -> bool:
    """Whether a statement makes a container longer; a list's element is only replaced, and a slice is shorter."""
    if _cuts(statement, handle):
        return False
    if not is_list or isinstance(statement, ast.AugAssign) or _is_cumulative(statement, handle):
        return _adds(statement, handle)
    return any(_is_adding_call(node, handle) for node in _own_nodes(statement))


def _cuts(statement: ast.AST, handle: Handle) -> bool:
    """Whether only a slice of a container is kept: ``x = x[-100:]``."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
        return False
    is_slice = isinstance(statement.value.slice, ast.Slice) and _matches(statement.value.value, handle)
    return is_slice and any(_matches(target, handle) for target in statement.targets)


def _check(adding: ast.stmt, handle: Handle, functions: Sequence[ast.AST]) -> tuple[ast.expr, ast.expr] | None:
    """The comparison that bounds what one statement adds."""
    around = [one for one in functions if any(node is adding for node in ast.walk(one))]
    inner = around[-1] if around else None
    for node in ast.walk(inner) if inner is not None else ():
        compared = _compared(node, handle) if isinstance(node, (ast.If, ast.While)) else None
        if compared is None:
            continue
        assert isinstance(node, (ast.If, ast.While))
        container, limit, is_below = compared
        inside = [part for one in node.body for part in ast.walk(one)]
        otherwise = [part for one in node.orelse for part in ast.walk(one)]
        is_bounded = any(part is adding for part in (inside if is_below else otherwise))
        if is_bounded or (not is_below and any(_takes_out(part, handle) for part in inside)):
            return container, limit
    return None


def _compared(node: ast.If | ast.While, handle: Handle) -> tuple[ast.expr, ast.expr, bool] | None:
    """The container, what its length is compared with, and whether the length is the smaller one."""
    test = node.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right, operator = test.left, test.comparators[0], test.ops[0]
    if _is_length(right, handle):
        left, right, turned = right, left, True
    elif _is_length(left, handle):
        turned = False
    else:
        return None
    assert isinstance(left, ast.Call)
    if isinstance(operator, (ast.Lt, ast.LtE)):
        return left.args[0], right, not turned
    if isinstance(operator, (ast.Gt, ast.GtE)):
        return left.args[0], right, turned
    return (left.args[0], right, False) if isinstance(operator, ast.Eq) else None


def _is_length(node: ast.AST, handle: Handle) -> bool:
    return (
        isinstance(node, ast.Call) and called(node) == "len" and len(node.args) == 1 and _matches(node.args[0], handle)
    )


def _takes_out(node: ast.AST, handle: Handle) -> bool:
    """Whether something is taken out of a container, or less of it is kept."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _TAKING and _matches(node.func.value, handle)
    if isinstance(node, ast.Delete):
        return any(isinstance(one, ast.Subscript) and _matches(one.value, handle) for one in node.targets)
    return _cuts(node, handle)


def _shortened(handle: Handle) -> Handle:
    return replace(handle, path=handle.path[:-1])


def _passes(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement gives it to a function."""
    return any(
        isinstance(node, ast.Call) and any(_matches(one, handle) for one in (*node.args, *_values(node)))
        for node in _own_nodes(statement)
    )


def _values(node: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in node.keywords]


def _is_cumulative(statement: ast.AST, handle: Handle) -> bool:
    if isinstance(statement, ast.AugAssign):
        return _matches(statement.target, handle)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    if not any(_matches(target, handle) for target in _targets(statement)):
        return False
    return any(isinstance(node, ast.expr) and _matches(node, handle) for node in ast.walk(statement.value))


def _matches(node: ast.AST, handle: Handle) -> bool:
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
