"""Syntax of source files: the functions in them, and the statements that add to a name."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from types import FunctionType
from typing import Any, NamedTuple

from tbmem.interruption import SuppressedErrors
from tbmem.model.evidence import CodeLine
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.ownership import is_user_file, method_files, plain_name

ADDING = frozenset(
    ("append", "appendleft", "extend", "extendleft", "add", "insert", "update", "setdefault", "put", "put_nowait")
    + ("push", "write", "register_hook", "add_param_group", "add_module", "register_module", "register_buffer")
)
"""Methods that make something longer."""
_REACHING = frozenset(("setdefault", "get", "pop", "__getitem__", "values", "items"))  # methods that return an element
_JOINING = frozenset(("heappush", "insort", "insort_left", "insort_right"))
Search = Callable[[ast.stmt, "Handle"], bool]  # whether a statement does something with what a handle denotes
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_LARGEST = 3_000_000  # characters of a file that is still read


@dataclass(frozen=True)
class Handle:
    """How the source names a value: a variable or an attribute, and the keys after it. Holds no object."""

    root: str = ""  # name of the variable, or of the attribute
    is_attribute: bool = False
    path: tuple[tuple[str, Any], ...] = ()  # ``("key", k)`` and ``("attr", name)`` behind it; a key of ``None`` is any
    files: tuple[str, ...] = ()  # where to look, likeliest first
    function_line: int = 0  # first line of the function in which the variable lives; 0 for a whole file


class Definition(NamedTuple):
    """A function, a lambda or a class."""

    name: str  # qualified, as Python has it
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    parent: Definition | None
    first: int  # first line, decorators included, as a code object has it


class SourceFile:
    """The syntax of one file; an empty tree for a file that cannot be read or parsed."""

    def __init__(self, filename: str) -> None:
        text = "".join(linecache.getlines(filename))
        try:
            self.tree = ast.parse(text if len(text) < _LARGEST else "")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])
        self.definitions = list(_definitions(self.tree, None))

    def function_at(self, line: int) -> Definition | None:
        """The innermost function around a line; ``None`` for the module itself."""
        functions = [one for one in self.definitions if isinstance(one.node, Functions)]
        around = [one for one in functions if one.first <= line <= (one.node.end_lineno or 0)]
        return around[-1] if around else None

    def function_from(self, line: int, name: str = "") -> Definition | None:
        """The function whose code begins at a line (at its first decorator, if it has any)."""
        for one in self.definitions:
            is_there = not isinstance(one.node, ast.ClassDef) and line in (one.first, one.node.lineno)
            if is_there and (not name or one.name.rpartition(".")[2] == name):
                return one
        return None

    def statement(self, line: int) -> ast.stmt | None:
        """The smallest statement around a line; of one with a body, only its head."""
        around = [one for one in statements(self.tree) if one.lineno <= line <= _last_line(one)]
        return max(reversed(around), key=lambda one: one.lineno, default=None)

    @cached_property
    def names(self) -> frozenset[str]:
        """All variables and attributes that occur in it."""
        nodes = list(ast.walk(self.tree))
        variables = {node.id for node in nodes if isinstance(node, ast.Name)}
        return frozenset(variables | {node.attr for node in nodes if isinstance(node, ast.Attribute)})

    def imports(self, name: str) -> bool:
        """Whether a statement of the file imports a name from a module."""
        found = (one for one in ast.walk(self.tree) if isinstance(one, ast.ImportFrom))
        return any(name == (each.asname or each.name) for one in found for each in one.names)


def _definitions(node: ast.AST, around: Definition | None) -> Iterator[Definition]:
    """The definitions in a node in the order of the file, each before those inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*Functions, ast.ClassDef, ast.Lambda)):
            name = "<lambda>" if isinstance(child, ast.Lambda) else child.name
            if around is not None:
                name = f"{around.name}{'.' if isinstance(around.node, ast.ClassDef) else '.<locals>.'}{name}"
            first = min([one.lineno for one in getattr(child, "decorator_list", ())] + [child.lineno])
            definition = Definition(name, child, around, first)
            yield definition
            yield from _definitions(child, definition)
        else:
            yield from _definitions(child, around)


def notebook_cell(filename: str) -> str:
    """Name of the notebook cell whose temporary file this is, as the notebook counts them: ``In[5]``; else empty."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        with SuppressedErrors():  # a shell of another kind
            return str(shell.compile.format_code_name(filename)[1])
    return ""


class SourceCode:
    """Files of the user's, each read and parsed once."""

    def __init__(self) -> None:
        self._files: dict[str, SourceFile] = {}

    @cached_property
    def notebook_cells(self) -> tuple[str, ...]:
        """The temporary files of all cells that were run in this notebook, the newest first; empty outside of one."""
        cells = ((notebook_cell(name), name) for name in list(linecache.cache) if "IPython" in sys.modules)
        numbered = [(int("0" + "".join(filter(str.isdigit, cell))), name) for cell, name in cells if cell]
        return tuple(name for _, name in sorted(numbered, reverse=True))

    def file(self, filename: str) -> SourceFile:
        """The syntax of a file."""
        if filename not in self._files:
            self._files[filename] = SourceFile(filename)
        return self._files[filename]

    def code_line(self, filename: str, line: int, function: str = "") -> CodeLine:
        """A line, or the first one of the statement that it is a part of."""
        source = self.file(filename)
        statement = source.statement(line)
        first = statement.lineno if statement is not None else line
        around = None if function else source.function_at(first)
        return CodeLine(
            file=notebook_cell(filename) or (filename if filename.startswith("<") else os.path.abspath(filename)),
            line=first,
            function=plain_name(around.name) if around is not None else function,
            text=linecache.getline(filename, first).strip(),
        )

    def binding_function(self, filename: str, line: int, name: str, variable: str) -> tuple[str, int] | None:
        """The function in which a free variable of the one at a line lives: its name and first line."""
        inner = self.file(filename).function_from(line, name)
        around = inner.parent if inner is not None else None
        while around is not None:
            if isinstance(around.node, Functions) and _binding(around.node, variable) is not None:
                return plain_name(around.name), around.node.lineno
            around = around.parent
        return None

    def files_of(self, kind: type) -> tuple[str, ...]:
        """Users' files in which a class and its bases are defined."""
        files: dict[str, None] = {}
        for base in plain.mro(kind):
            module = sys.modules.get(plain.module_of(base))
            filename = getattr(module, "__dict__", {}).get("__file__")
            files.update(dict.fromkeys((*method_files(base), *([filename] if type(filename) is str else ()))))
        return tuple(filter(is_user_file, files))

    def adding_lines(self, handle: Handle, more_files: Iterable[str] = ()) -> list[CodeLine]:
        """The lines that add to what a handle denotes, likeliest first; in ``more_files`` if its own have none."""
        return self._lines((adds, _calls, _passes), handle, more_files)

    def filling_lines(self, handle: Handle, more_files: Iterable[str] = ()) -> list[CodeLine]:
        """The lines that write into a buffer, likeliest first: most of its methods move in it or read it."""
        return self._lines((adds, _passes), handle, more_files)

    def _lines(self, searches: Iterable[Search], handle: Handle, more_files: Iterable[str]) -> list[CodeLine]:
        for filename in dict.fromkeys((*handle.files, *more_files)):
            for search in searches:
                if found := self._statements_about(filename, handle, search):
                    return self._code_lines(filename, found)
        return []

    def _statements_about(self, filename: str, handle: Handle, search: Search) -> list[ast.stmt]:
        """The statements of a file that do something with what a handle denotes."""
        if handle.root not in self.file(filename).names:
            return []
        found = [one for one in statements(self.scope(filename, handle)) if search(one, handle)]
        return [one for one in found if self._denotes(filename, one, handle, through_parameter=search is adds)]

    def _denotes(self, filename: str, statement: ast.stmt, handle: Handle, *, through_parameter: bool) -> bool:
        """Whether the name of a handle's variable is that variable where a statement stands.

        A function with a variable of the same name hides it. With a parameter of the same name the function may have
        been given it: accepted ``through_parameter``.
        """
        if handle.is_attribute:
            return True
        file, is_own = self.file(filename), filename in handle.files
        around = file.function_at(statement.lineno)
        while around is not None and not (is_own and handle.function_line in (around.first, around.node.lineno)):
            binding = _binding(around.node, handle.root)
            if binding is not None:
                return binding is _Binding.PARAMETER and through_parameter
            around = around.parent
        return is_own or (not handle.function_line and file.imports(handle.root))

    def assignments(self, handle: Handle, more_files: Iterable[str] = ()) -> list[tuple[CodeLine, bool]]:
        """The lines that assign a variable, and whether the new value uses the old one."""
        for filename in dict.fromkeys((*handle.files, *more_files)):
            if assigning := self._statements_about(filename, handle, _assigns):
                return [(self.code_line(filename, one.lineno), uses_old_value(one, handle)) for one in assigning]
        return []

    def is_cumulative(self, line: CodeLine, handle: Handle) -> bool:
        """Whether a line assigns a variable a value that is computed from its old one."""
        statement = self.file(line.file).statement(line.line)
        return statement is not None and uses_old_value(statement, handle)

    def calls(self, files: Iterable[str], wanted: Callable[[ast.Call], bool]) -> list[CodeLine]:
        """Statements of some files with a call that a function accepts."""
        return self._statements(
            files, lambda one: any(isinstance(node, ast.Call) and wanted(node) for node in own_nodes(one))
        )

    def attribute_lines(self, files: Iterable[str], names: Iterable[str]) -> list[CodeLine]:
        """Statements of some files that set an attribute with one of some names."""
        wanted = set(names)
        return self._statements(
            files, lambda one: any(isinstance(to, ast.Attribute) and to.attr in wanted for to in _targets(one))
        )

    def _statements(self, files: Iterable[str], wanted: Callable[[ast.stmt], bool]) -> list[CodeLine]:
        lines: list[CodeLine] = []
        for name in dict.fromkeys(files):
            lines += self._code_lines(name, [one for one in statements(self.file(name).tree) if wanted(one)])
        return lines

    def _code_lines(self, filename: str, found: Iterable[ast.stmt]) -> list[CodeLine]:
        return [self.code_line(filename, line) for line in dict.fromkeys(one.lineno for one in found)]

    def scope(self, filename: str, handle: Handle) -> ast.AST:
        """The function in which a handle's variable lives, or a whole file."""
        file = self.file(filename)
        is_own = handle.function_line and filename in handle.files
        function = file.function_from(handle.function_line) if is_own else None
        return function.node if function is not None else file.tree


def definition_line(function: FunctionType, sources: SourceCode) -> CodeLine:
    """The line with a function's ``def``, past its decorators."""
    code = function.__code__
    definition = sources.file(code.co_filename).function_from(code.co_firstlineno, code.co_name)
    line = definition.node.lineno if definition is not None else code.co_firstlineno
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
    return max(node.lineno, int(body[0].lineno) - 1) if body else node.end_lineno or node.lineno


def statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """All statements of a function or a file."""
    return (node for node in ast.walk(scope) if isinstance(node, ast.stmt))


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements inside it."""
    stack = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))


class _Binding(Enum):
    """How a name becomes a function's own."""

    PARAMETER = auto()
    VARIABLE = auto()


def _binding(function: ast.AST, name: str) -> _Binding | None:
    """What a name is in a function itself; ``None`` for one of a scope around it."""
    nodes = list(_inside(function))
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names for node in nodes):
        return None
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined = {node.name for node in nodes if isinstance(node, (*Functions, ast.ClassDef))}
    if name in stored | defined:
        return _Binding.VARIABLE
    return _Binding.PARAMETER if any(isinstance(node, ast.arg) and node.arg == name for node in nodes) else None


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those inside of its functions and comprehensions, whose names are their own."""
    scopes = (*Functions, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    stack = [function]
    while stack:
        for child in ast.iter_child_nodes(stack.pop()):
            yield child
            if not isinstance(child, scopes):
                stack.append(child)


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    nodes = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.expr))
    return (node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store))


def _assigns(statement: ast.stmt, handle: Handle) -> bool:
    return any(matches(target, handle) for target in _targets(statement))


def adds(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement calls a method that adds, sets an element, or adds up."""
    if isinstance(statement, (ast.Assign, ast.AugAssign)) and uses_old_value(statement, handle):
        return True
    if any(isinstance(target, ast.Subscript) and matches(target.value, handle) for target in _targets(statement)):
        return True
    return any(is_adding_call(node, handle) for node in own_nodes(statement))


def is_adding_call(node: ast.AST, handle: Handle) -> bool:
    """Whether an expression is a call that makes something longer."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
        return matches(node.func.value, handle)
    return called(node) in _JOINING and bool(node.args) and matches(node.args[0], handle)


def _calls(statement: ast.stmt, handle: Handle) -> bool:
    """Whether a statement calls any method of it, or of what it is a part of (``queue.put`` for ``queue.queue``)."""
    owners = [replace(handle, path=handle.path[:length]) for length in range(len(handle.path) + 1)]
    methods = [node.func for node in own_nodes(statement) if isinstance(node, ast.Call)]
    called_on = [method.value for method in methods if isinstance(method, ast.Attribute)]
    return any(matches(node, owner) for node in called_on for owner in owners)


def _passes(statement: ast.stmt, handle: Handle) -> bool:
    calls = [node for node in own_nodes(statement) if isinstance(node, ast.Call)]
    arguments = [one for node in calls for one in (*node.args, *(word.value for word in node.keywords))]
    return any(matches(one, handle) for one in arguments)


def uses_old_value(statement: ast.AST, handle: Handle) -> bool:
    """Whether a statement assigns a value that is computed from the old one."""
    if isinstance(statement, ast.AugAssign):
        return matches(statement.target, handle)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    return _assigns(statement, handle) and any(
        isinstance(node, ast.expr) and matches(node, handle) for node in ast.walk(statement.value)
    )


def matches(node: ast.AST, handle: Handle) -> bool:
    """Whether an expression denotes what a handle does."""
    for kind, label in reversed(handle.path):
        if kind != "attr":
            inner = _owner_of_element(node, label)
        else:
            inner = node.value if isinstance(node, ast.Attribute) and node.attr == label else None
        if inner is None:
            return False
        node = inner
    if handle.is_attribute:
        return isinstance(node, ast.Attribute) and node.attr == handle.root
    return isinstance(node, ast.Name) and node.id == handle.root


def _owner_of_element(node: ast.AST, key: Any) -> ast.AST | None:
    """``x`` of ``x[key]``, ``x[any]`` or ``x.setdefault(...)``."""
    if isinstance(node, ast.Subscript):
        index = node.slice
        is_other = isinstance(index, ast.Constant) and key is not None and index.value != key
        return None if is_other else node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REACHING:
        return node.func.value
    return None
