"""The configuration reference, from the schema: fields, types, rules, and their docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple

import yaml

from docs.site.field_docs import field_docs
from docs.site.markdown import table
from docs.site.repository import ROOT, Page
from tbmem.config.schema import ENVIRONMENT_PREFIX, Config

_TYPES = {"bool": "`true`, `false`", "tuple[float, ...]": "a list of numbers"}


class Key(NamedTuple):
    """One setting."""

    name: str
    meaning: str
    unit: str
    default: str
    allowed: str
    when: str
    """When to change it."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + self.name.replace(".", "_").upper()


def keys(record: type[Any] = Config, prefix: str = "") -> Iterator[Key]:
    """Every key, in the schema's order."""
    docs = field_docs(record)
    for each in fields(record):
        if is_dataclass(each.default_factory):
            yield from keys(each.default_factory, f"{each.name}.")  # type: ignore[arg-type]
            continue
        meaning, _, rest = docs[each.name].partition("\n\n")
        unit, when = re.findall(r"\A(?:Unit: (.*?)\. )?Change it: (.*)", rest, flags=re.DOTALL)[0]
        assert each.default is not MISSING
        default = list(each.default) if isinstance(each.default, tuple) else each.default
        shown = yaml.safe_dump(default, default_flow_style=True).removesuffix("...\n").strip()
        rules = (text for text, _ in each.metadata.get("rules", ()))
        yield Key(f"{prefix}{each.name}", meaning, unit, shown, _allowed(str(each.type), unit, rules), when)


def _allowed(kind: str, unit: str, rules: Iterator[str]) -> str:
    if kind == "int | str" and unit.startswith("bytes"):
        return "bytes, or a size with its unit such as `2 MiB`"
    said = [_in_words(rule) for rule in rules if rule]
    kinds = {"int": "whole numbers", "float": "numbers", **_TYPES}
    return ", ".join(part for part in (kinds.get(kind, ""), *said) if part) or kind


def _in_words(rule: str) -> str:
    words = rule.removeprefix("must be ").removeprefix("must ").replace("or be null", "or `null`")
    return words.replace("name a folder", "the name of a folder").replace("lie inside", "inside")


def page() -> Page:
    """The reference, with the presets."""
    parts = [_BEFORE]
    sections = {each.name: each.default_factory for each in fields(Config) if is_dataclass(each.default_factory)}
    section = ""
    for key in keys():
        name = key.name.rpartition(".")[0]
        if name != section:
            section = name
            parts.append(f"## {name}\n\n{(sections[name].__doc__ or '').strip()}")
        facts = {"default": f"`{key.default}`", "allowed": key.allowed, "unit": key.unit}
        rows = [(word, text) for word, text in facts.items() if text]
        rows += [("environment", f"`{key.variable}`"), ("when to change it", key.when)]
        parts.append(f'### {key.name} {{ id="{key.name}" }}\n\n{key.meaning}\n\n{table(("", ""), rows)}')
    parts.append('## Presets\n\nA preset is given by its name: `MemoryCallback("light")`, `tbmem run -c light`.')
    presets = sorted((ROOT / "configs").glob("*.yaml"))
    parts += [f"### {path.name}\n\n```yaml\n{path.read_text(encoding='utf-8')}```" for path in presets]
    return Page("configuration.md", "\n\n".join(parts) + "\n", "docs/README.md")


_BEFORE = """\
# Configuration reference

Values come from the defaults, a YAML file or [preset](#presets), environment variables, then overrides
(`profiling.active=5`) and keyword arguments (`MemoryCallback(profiling={"active": 5})`). `tbmem config` prints all of
them with their origin ([settings](guide.md#settings))."""
