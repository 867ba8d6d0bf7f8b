"""ES modules by name go in; one expression of JavaScript comes out, whose value has what the first one exports.

Over file:// browsers import nothing, and of a server one file is there sooner than thirty that name each other.
Each module becomes a function that is called once, after those it imports, and hands out what it exports. That holds
for modules as the front end has them: named imports and exports, relative paths, no circles, nothing exported that is
assigned later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import dirname, join, normpath

_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s*from\s*)?["\']([^"\']+)["\'];?', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?function\b|class\b|const\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export\s+(?:(?:async\s+)?function\s*\*?|class|const)\s+([A-Za-z_$][\w$]*)", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """One expression, whose value has what the entry exports.

    Args:
        modules: Sources by name: ``'views/live.js'``.
        entry: The module to begin with.

    Raises:
        ValueError: A module imports or exports in a way that is not provided for, or in a circle.
    """
    functions = [
        f"$modules[{_text(name)}] = (() => {{\n{_as_function(name, modules[name])}\n}})();"
        for name in _in_order(modules, entry)
    ]
    parts = ('"use strict";', "const $modules = {};", *functions, f"return $modules[{_text(entry)}];")
    return "(() => {\n" + "\n".join(parts) + "\n})()"


def _in_order(modules: Mapping[str, str], entry: str) -> list[str]:
    """Modules that are needed, each after those it imports."""
    done: list[str] = []

    def visit(name: str, way: Sequence[str]) -> None:
        if name in way:
            raise ValueError(f"modules import each other: {' -> '.join((*way, name))}")
        if name not in modules:
            raise ValueError(f"{way[-1] if way else 'the entry'} imports {name}, which is not there")
        if name not in done:
            for match in _IMPORT.finditer(modules[name]):
                visit(_resolved(name, match[2]), (*way, name))
            done.append(name)

    visit(entry, ())
    return done


def _resolved(importer: str, path: str) -> str:
    if not path.startswith("."):
        raise ValueError(f"{importer} imports {path}: only relative paths are provided for")
    return normpath(join(dirname(importer), path))


def _as_function(name: str, source: str) -> str:
    exported = _EXPORTED.findall(source)
    body = _IMPORT.sub(lambda match: _taken(name, match), source)
    body = _EXPORT.sub("", body)
    if left := _LEFT.search(body):
        raise ValueError(f"{name}: not provided for: {left[0]}")
    return f"{body}\nreturn {{ {', '.join(exported)} }};"


def _taken(importer: str, match: re.Match[str]) -> str:
    """An import as a declaration: ``as`` becomes a colon."""
    if match[1] is None:
        return ""
    names = [" : ".join(re.split(r"\s+as\s+", one.strip())) for one in match[1].split(",") if one.strip()]
    return f"const {{ {', '.join(names)} }} = $modules[{_text(_resolved(importer, match[2]))}];"


def _text(name: str) -> str:
    return f'"{name}"'
