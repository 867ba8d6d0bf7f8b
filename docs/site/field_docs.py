"""What the source says of the fields of a class: the docstrings below them, the comments behind them, or their help."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from typing import Any, get_type_hints


def field_docs(record: type[Any]) -> dict[str, str]:
    """The text of each field that has one, by its name; with those of the classes that it inherits from."""
    hints = get_type_hints(record, include_extras=True).items()
    helps = {
        name: one.help for name, hint in hints for one in getattr(hint, "__metadata__", ()) if hasattr(one, "help")
    }
    return {**helps, **_source_docs(getattr(record, "__record__", record))}


def _source_docs(record: type[Any]) -> dict[str, str]:
    lines = textwrap.dedent(inspect.getsource(record)).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    assert isinstance(tree, ast.ClassDef)
    docs: dict[str, str] = {}
    # a TypedDict does not know the classes that it was written with
    for base in tree.bases:
        inherited = getattr(sys.modules[record.__module__], base.id, None) if isinstance(base, ast.Name) else None
        if getattr(inherited, "__module__", "").partition(".")[0] == "tbmem":
            docs |= _source_docs(inherited)  # type: ignore[arg-type]
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        comment = re.search(r"  # (.+)$", lines[(node.end_lineno or node.lineno) - 1])
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docs[node.target.id] = inspect.cleandoc(str(following.value.value))
        elif comment is not None and "type: ignore" not in comment[1]:
            docs[node.target.id] = comment[1]
    return docs
