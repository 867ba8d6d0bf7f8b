"""JSON schemas of what commands print with ``--json``, as files and as tables, from ``present/json_output.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec

from docs.site.field_docs import field_docs
from docs.site.markdown import table
from docs.site.repository import Page
from tbmem.present.json_output import OUTPUTS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS = "#/$defs/"


def schemas() -> dict[str, dict[str, Any]]:
    """The schema of each command that has ``--json``."""
    return {name: _schema(name) for name in OUTPUTS}


def _schema(command: str) -> dict[str, Any]:
    outputs = OUTPUTS[command]
    tops, definitions = msgspec.json.schema_components(outputs, ref_template=f"{_DEFINITIONS}{{name}}")
    records = {record.__name__: record for output in outputs for record in _records(output)}
    for name, definition in definitions.items():
        if "properties" in definition:
            _complete(definition, records[name])
    top = tops[0] if len(tops) == 1 else {"anyOf": list(tops)}
    return {"$schema": _DRAFT, "title": f"tbmem {command} --json", **top, "$defs": dict(definitions)}


def _records(kind: Any) -> Iterator[type[Any]]:
    """Every class with fields within a type."""
    for part in get_args(kind):
        yield from _records(part)
    if isinstance(kind, type) and getattr(kind, "__annotations__", None):
        yield kind
        # a record within itself is a child of the same class
        for hint in get_type_hints(kind).values():
            if kind not in get_args(hint):
                yield from _records(hint)


def _complete(definition: dict[str, Any], record: type[Any]) -> None:
    """Printed records have all fields and no others; what they mean stands in the source."""
    order, docs = list(get_type_hints(record)), field_docs(record)
    properties = dict(sorted(definition["properties"].items(), key=lambda item: order.index(item[0])))
    definition["properties"] = properties
    defaults = [name for name, kind in properties.items() if kind.pop("default", kind) is not kind]
    required = {*definition.get("required", ()), *defaults}
    definition["required"] = [name for name in properties if name in required]
    definition["additionalProperties"] = False
    for name, kind in properties.items():
        if name in docs:
            kind["description"] = " ".join(docs[name].replace("``", "`").split())


def pages() -> Iterator[Page]:
    """The list of schemas."""
    rows = [
        (
            f"[`tbmem {name} --json`](site:commands/{name}.md#json-output)",
            f"[{name}.schema.json](site:json/{name}.schema.json)",
        )
        for name in OUTPUTS
    ]
    text = f"# JSON output\n\n{_BEFORE}\n\n{table(('command', 'JSON schema'), rows)}\n"
    yield Page("json/index.md", text, "docs/README.md")


_BEFORE = """\
Commands with `--json` print one JSON value on standard output, and messages on standard error. Sizes are bytes and
times seconds; `null` is what is not known. The schemas are generated from the records that are printed, and the tests
validate the output of each command by them. A new version may add keys."""


def _file(command: str) -> str:
    return f"[{command}.schema.json](site:json/{command}.schema.json)"


def json_section(command: str) -> list[str]:
    """The part of a command's page that says what its JSON holds."""
    if command not in OUTPUTS:
        return []
    schema = _schema(command)
    parts = ["## JSON output", f"With `--json` the output is {_words(schema)}. Its JSON schema: {_file(command)}."]
    for name, definition in schema["$defs"].items():
        about = " ".join(definition.get("description", "").split())
        if "properties" in definition:
            fields = definition["properties"].items()
            rows = [(f"`{key}`", _words(kind), kind.get("description", "")) for key, kind in fields]
            parts.append(f'### {name} {{ id="json-{name}" }}\n\n{about}\n\n{table(("key", "type", "meaning"), rows)}')
        else:
            values = ", ".join(f"`{value}`" for value in definition["enum"])
            parts.append(f'### {name} {{ id="json-{name}" }}\n\n{about}\n\nOne of {values}.')
    return parts


def _words(kind: dict[str, Any]) -> str:
    """A type for people, with links to the records that it has."""
    if "$ref" in kind:
        name = kind["$ref"].removeprefix(_DEFINITIONS)
        return f"[{name}](#json-{name})"
    if "anyOf" in kind:
        return " or ".join(_words(each) for each in kind["anyOf"])
    if kind.get("type") == "array":
        items = kind.get("items") or {"anyOf": kind.get("prefixItems", [])}
        return f"list of {_words(items)}"
    if isinstance(kind.get("additionalProperties"), dict):
        return f"object of {_words(kind['additionalProperties'])}"
    named = kind.get("type", "any")
    return " or ".join(named) if isinstance(named, list) else str(named)
