"""Prints how large the product is, and how it is divided: ``python -m tests.layout``.

Files and lines of Python, median, 90 % and maximum of files and functions, modules with a single importer (a small one
may belong into it), and modules without a test file.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tbmem"
SMALL = 60
"""Lines of a module that may belong into its only importer."""


def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    return {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _name(path: Path) -> str:
    return ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def lines_of(path: Path) -> int:
    """Lines of a file, empty ones and comments included."""
    return len(path.read_text(encoding="utf-8").splitlines())


def functions_of(path: Path) -> list[int]:
    """Lines of each function and method of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def imports_of(path: Path) -> set[str]:
    """Names of all modules that a file imports, wherever in it."""
    return {name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for name in _imported(node)}


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers() -> dict[str, set[str]]:
    """The modules that import each module of the product."""
    known = modules()
    users: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        for imported in imports_of(path) & known.keys():
            users[imported].add(name)
    return users


def without_tests() -> list[str]:
    """Modules of more than ``SMALL`` lines that have no test file of their name at their place in ``tests/``."""
    return [
        name
        for name, path in modules().items()
        if lines_of(path) > SMALL and path.name not in ("__init__.py", "__main__.py") and not _test_of(path).exists()
    ]


def _test_of(path: Path) -> Path:
    return Path(__file__).parent / path.relative_to(PACKAGE).with_name(f"test_{path.name}")


def main() -> None:
    paths = modules()
    code = {name: path for name, path in paths.items() if path.name != "__init__.py"}
    print(f"files      {len(paths)} ({len(paths) - len(code)} of them __init__.py)")
    print(f"lines      {sum(map(lines_of, paths.values())):,}")
    print(f"file       {_spread([lines_of(path) for path in code.values()])}")
    print(f"function   {_spread([length for path in code.values() for length in functions_of(path)])}")
    single = {name for name, users in importers().items() if len(users) == 1 and name in code}
    print(f"modules with a single importer  {len(single)}")
    small = sorted(name for name in single if lines_of(paths[name]) < SMALL)
    print(f"of them with fewer than {SMALL} lines  {len(small)}: {', '.join(small)}")
    print(f"modules of more than {SMALL} lines without a test file of their name  {len(without_tests())}")


def _spread(lengths: Sequence[int]) -> str:
    ordered = sorted(lengths)
    return f"median {ordered[len(ordered) // 2]}, 90 % {ordered[len(ordered) * 9 // 10]}, maximum {ordered[-1]} lines"


if __name__ == "__main__":
    main()
