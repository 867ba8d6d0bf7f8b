"""The command ``tbmem config``: the merged configuration with the origin of each value."""

from __future__ import annotations

import json
from typing import Any

import typer
import yaml

from tbmem.cli.arguments import AsJson, ConfigFile, Overrides
from tbmem.config import LoadedConfig, load_with_origins

_COLUMN = 37


def command(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Print the merged configuration and where each value came from, as YAML that can be used as a file."""
    loaded = load_with_origins(config, overrides or ())
    typer.echo(json.dumps(_view(loaded), indent=2) if as_json else "\n".join(_yaml_lines(loaded)))


def _view(loaded: LoadedConfig) -> dict[str, Any]:
    return {
        key: {"value": value, "origin": loaded.origins.get(key, "default")} for key, value in loaded.values().items()
    }


def _yaml_lines(loaded: LoadedConfig) -> list[str]:
    lines: list[str] = []
    section = ""
    for key, value in loaded.values().items():
        parent, _, name = key.rpartition(".")
        if parent != section:
            section = parent
            lines.append(f"{parent}:")
        text = f"{'  ' if parent else ''}{name}: {_scalar(value)}"
        lines.append(f"{text:<{_COLUMN}} # {loaded.origins.get(key, 'default')}")
    return lines


def _scalar(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()
