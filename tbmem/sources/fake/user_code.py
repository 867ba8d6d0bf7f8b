"""Modules of the user's are imported; calls in them that would lose what is not known of a number are led elsewhere.

``int()`` of a tensor gives a plain number, and ``range()`` takes one without a word. In the user's own files, as far as
they are imported within the block, these calls are calls of functions that know better.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any

from tbmem.sources.fake.pretend import patched
from tbmem.sources.usercode import is_user_file

_PREFIX = "tbmem_"
"""No underscores before it: classes would make such names their own."""


@contextlib.contextmanager
def calls_led_to(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """The user's modules call other functions than Python's.

    Args:
        functions: By the name of the built-in function whose place they take.
    """
    finder = _Finder(frozenset(functions))
    with contextlib.ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(patched(builtins, _PREFIX + name, function))
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)


class _Finder:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Where a module is, and who loads it."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None:
            return spec
        if is_user_file(spec.origin):
            spec.loader = _Loader(name, spec.origin, self._names)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, names: frozenset[str]) -> None:
        super().__init__(name, path)
        self._names = names

    def get_code(self, fullname: str) -> Any:
        """The module's code; what Python has compiled before is another."""
        del fullname
        tree = ast.parse(self.get_data(self.path), self.path)
        own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return compile(_Leads(self._names - own).visit(tree), self.path, "exec", dont_inherit=True)


class _Leads(ast.NodeTransformer):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call of one of the functions becomes one of its stand-in."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._names:
            node.func = ast.copy_location(ast.Name(_PREFIX + node.func.id, ast.Load()), node.func)
        return node
