"""The Memory tab as one self-contained HTML file, with its modules, style sheets and all answers inlined.

A content security policy forbids the browser to fetch anything, so the page looks the same without a network.
"""

from __future__ import annotations

import functools
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from posixpath import dirname, join, normpath
from typing import Any

from tbmem import web

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s*from\s*)?["\']([^"\']+)["\'];?', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?function\b|class\b|const\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export\s+(?:(?:async\s+)?function\s*\*?|class|const)\s+([A-Za-z_$][\w$]*)", re.MULTILINE)
_UNSUPPORTED = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def web_page(title: str, answers: Mapping[str, Any]) -> str:
    """The page as HTML, with the JSON answers by key (``key_of``)."""
    script = _escaped(page_script())
    return "\n".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{_escaped(page_style())}</style>",
            f'<script type="application/json" id="tbmem-data">{as_inline_json(answers)}</script>',
            # the script draws into the body, which exists once the document has been parsed
            f'<script>document.addEventListener("DOMContentLoaded", () => {{\n{script}.render();\n}});</script>',
            "</head><body></body></html>\n",
        )
    )


@functools.cache
def page_script() -> str:
    """The front end as one expression; its ``render`` draws the page."""
    return bundle(web.files(".js"), "index.js")


@functools.cache
def page_style() -> str:
    """All style sheets of the front end."""
    return "".join(web.files(".css").values())


def as_inline_json(answers: Mapping[str, Any]) -> str:
    """JSON for a script element: ``<`` is escaped, since a tag in a file name would end the element."""
    return as_json(answers).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def as_json(value: Any) -> str:
    """Plain values as compact JSON; a number that is not finite becomes null."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    try:
        return encode(value)
    except ValueError:
        # a log may hold NaN; searching for it up front would cost as much as encoding
        return encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def key_of(view: str, params: Mapping[str, str | Sequence[str]]) -> str:
    """Key of an answer: ``'timeline?file=a.json&run=b'``."""
    pairs = []
    for name in sorted(params):
        value = params[name]
        pairs += [f"{name}={item}" for item in ([value] if isinstance(value, str) else value)]
    return f"{view}?{'&'.join(pairs)}" if pairs else view


def _escaped(text: str) -> str:
    """A script or style sheet without end tags and HTML comments, which occur only inside strings."""
    return text.replace("</script", "<\\/script").replace("</style", "<\\/style").replace("<!--", "<\\!--")


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """ES modules as one expression whose value holds the exports of the entry module.

    Raises:
        ValueError: An import or export statement is not supported, or modules import each other.
    """
    names = _in_order(modules, entry)
    functions = [f'$modules["{name}"] = (() => {{\n{_as_function(name, modules[name])}\n}})();' for name in names]
    parts = ('"use strict";', "const $modules = {};", *functions, f'return $modules["{entry}"];')
    return "(() => {\n" + "\n".join(parts) + "\n})()"


def _in_order(modules: Mapping[str, str], entry: str) -> list[str]:
    """Modules in use, each after those that it imports."""
    ordered: list[str] = []

    def visit(name: str, path: Sequence[str]) -> None:
        if name in path:
            raise ValueError(f"modules import each other: {' -> '.join((*path, name))}")
        if name not in modules:
            raise ValueError(f"{path[-1] if path else 'the entry'} imports {name}, which is not there")
        if name not in ordered:
            for match in _IMPORT.finditer(modules[name]):
                visit(_resolved(name, match[2]), (*path, name))
            ordered.append(name)

    visit(entry, ())
    return ordered


def _resolved(importer: str, path: str) -> str:
    if not path.startswith("."):
        raise ValueError(f"{importer} imports {path}: only relative paths are provided for")
    return normpath(join(dirname(importer), path))


def _as_function(name: str, source: str) -> str:
    exported = _EXPORTED.findall(source)
    body = _IMPORT.sub(lambda match: _declaration(name, match), source)
    body = _EXPORT.sub("", body)
    if statement := _UNSUPPORTED.search(body):
        raise ValueError(f"{name}: not provided for: {statement[0]}")
    return f"{body}\nreturn {{ {', '.join(exported)} }};"


def _declaration(importer: str, match: re.Match[str]) -> str:
    """An import statement as a declaration: ``as`` becomes a colon."""
    if match[1] is None:
        return ""
    names = [" : ".join(re.split(r"\s+as\s+", name.strip())) for name in match[1].split(",") if name.strip()]
    return f'const {{ {", ".join(names)} }} = $modules["{_resolved(importer, match[2])}"];'
