"""The command ``tbmem config``: the merged configuration with the origin of each value."""

from __future__ import annotations

import json

import typer
import yaml

from tbmem.cli.arguments import AsJson, ConfigFile, Overrides
from tbmem.config import LoadedConfig, load_with_origins

_COLUMN = 37


def command(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Print the merged configuration with the origin of each value, as a valid YAML configuration file."""
    loaded = load_with_origins(config, overrides or ())
    if as_json:
        view = {key: {"value": value, "origin": loaded.origins[key]} for key, value in loaded.values().items()}
        typer.echo(json.dumps(view, indent=2))
    else:
        typer.echo("\n".join(_yaml_lines(loaded)))


def _yaml_lines(loaded: LoadedConfig) -> list[str]:
    lines: list[str] = []
    section = ""
    for key, value in loaded.values().items():
        parent, _, name = key.rpartition(".")
        if parent != section:
            section = parent
            lines.append(f"{parent}:")
        text = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, allow_unicode=True)
        line = f"{'  ' if parent else ''}{name}: " + text.removesuffix("...\n").strip()
        lines.append(f"{line:<{_COLUMN}} # {loaded.origins[key]}")
    return lines
