"""What the source says of the fields of a class: the docstrings below them, or the comments behind them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any


def field_docs(record: type[Any]) -> dict[str, str]:
    """The text of each field that has one, by its name; with those of the classes that it inherits from."""
    docs: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if each.__module__.partition(".")[0] == "tbmem":
            docs |= _own_docs(each)
    return docs


def _own_docs(record: type[Any]) -> dict[str, str]:
    lines = textwrap.dedent(inspect.getsource(record)).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for number, node in enumerate(tree.body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        following = tree.body[number + 1] if number + 1 < len(tree.body) else None
        comment = re.search(r"  # (.+)$", lines[(node.end_lineno or node.lineno) - 1])
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docs[node.target.id] = inspect.cleandoc(str(following.value.value))
        elif comment is not None:
            docs[node.target.id] = comment[1]
    return docs
