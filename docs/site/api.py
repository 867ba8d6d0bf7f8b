"""Pages of the Python API: what each public name is, for mkdocstrings to fill with its docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import griffe

import tbmem
from docs.site.markdown import table
from docs.site.repository import ROOT, Page, read

_TITLES = {
    "runtime": "During a run",
    "integrations": "In a framework",
    "pytest_plugin": "In pytest",
    "estimator": "Estimates before a run",
    "rehearsal": "Rehearsals before a run",
    "offline": "After a run",
    "config": "Configuration",
    "model": "Records",
    "analysis": "Results of analyses",
    "errors": "Errors",
}
"""Pages by the package that the names are in; others have the package's name."""
_ADAPTERS = "tbmem/integrations"


def public_names() -> dict[str, list[str]]:
    """What users import, by package: ``tbmem.__all__`` by the place of its definition, and the adapters."""
    names: dict[str, list[str]] = {package: [] for package in _TITLES}
    for name in tbmem.__all__:
        package = tbmem._HOMES[name].split(".")[1]
        names.setdefault(package, []).append(f"tbmem.{name}")
    for path in sorted((ROOT / _ADAPTERS).glob("*.py")):
        if path.stem not in ("__init__", "base"):
            names["integrations"] += [f"tbmem.integrations.{path.stem}.{name}" for name in _classes(path.stem)]
    names["pytest_plugin"] = ["tbmem.pytest_plugin"]
    return {package: found for package, found in names.items() if found}


def _classes(adapter: str) -> list[str]:
    """Public classes and functions of an adapter, whose framework is not imported."""
    body = ast.parse(read(f"{_ADAPTERS}/{adapter}.py")).body
    found = (node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    return [name for name in found if not name.startswith("_")]


def _summaries(names: list[str]) -> dict[str, str]:
    """The first line of each name's docstring; nothing is imported."""
    package = griffe.load("tbmem", search_paths=[str(ROOT)], resolve_aliases=True)
    docs = {name: package[name.removeprefix("tbmem.")].docstring for name in names}
    return {name: doc.value.partition("\n")[0] if doc is not None else "" for name, doc in docs.items()}


def pages() -> Iterator[Page]:
    """The list of names, and a page for each package."""
    packages = public_names()
    summaries = _summaries([name for names in packages.values() for name in names])
    rows = [
        (f"[`{name}`](site:api/{package}.md#{name})", summaries[name])
        for package, names in packages.items()
        for name in names
    ]
    yield Page("api/index.md", f"# Python API\n\n{_BEFORE}\n\n{table(('name', 'use'), rows)}\n", "docs/README.md")
    for package, names in packages.items():
        blocks = "\n\n".join(f"::: {name}" for name in names)
        yield Page(f"api/{package}.md", f"# {_TITLES.get(package, package)}\n\n{blocks}\n", "docs/README.md")


_BEFORE = """\
`import tbmem` loads neither torch nor numpy: each name is imported when it is first used. Sizes are bytes, times Unix
seconds, unless a field's name says otherwise. Errors are subclasses of `tbmem.TbmemError`."""
