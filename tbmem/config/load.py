"""Loads a Config with the origin of each value; OmegaConf is only imported if there is something to merge."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from tbmem.config.schema import ENVIRONMENT_PREFIX, Config, MonitorConfig, ProfilingConfig, flatten, schema_keys
from tbmem.errors import ConfigError
from tbmem.untraced import untraced

Section = TypeVar("Section", MonitorConfig, ProfilingConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedConfig:
    """A configuration and the origin of each value."""

    config: Config
    origins: Mapping[str, str]
    """Full key to origin: ``'default'``, a file's path, an override as typed, or a variable's name."""

    def values(self) -> dict[str, Any]:
        """Every value by its full key, in the schema's order."""
        return flatten(asdict(self.config))


ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | Config | LoadedConfig | None
"""A YAML file, the name of a preset, a mapping of sections, a Config, a LoadedConfig, or ``None`` (the defaults)."""


def load_config(
    source: ConfigSource = None,
    overrides: Iterable[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    **sections: Any,
) -> Config:
    """The merged and checked configuration; see ``load_with_origins`` for arguments and errors."""
    return load_with_origins(source, overrides, environment=environment, **sections).config


def load_with_origins(
    source: ConfigSource = None,
    overrides: Iterable[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    **sections: Any,
) -> LoadedConfig:
    """Merge all layers of a configuration and check the result.

    Later layers win: defaults, ``source``, environment, ``overrides``, ``sections``.

    Args:
        source: With a Config or LoadedConfig the environment is ignored.
        overrides: A dotlist, ``["profiling.active=5", "run.logdir=/scratch"]``.
        environment: Variables to read ``TBMEM_<SECTION>_<KEY>`` from; ``os.environ`` by default.
        **sections: Values by section, ``profiling={"active": 5}``, ``enabled=False``.

    Raises:
        ConfigError: A file is missing or no YAML mapping, a key is unknown, or a value does not fit.
    """
    variables: Mapping[str, str] = os.environ if environment is None else environment
    if isinstance(source, LoadedConfig) and not overrides and not sections:
        return source
    if isinstance(source, LoadedConfig):
        source = source.config
    if isinstance(source, Config):
        variables = {}
    from_environment = any(name.startswith(ENVIRONMENT_PREFIX) for name in variables)
    if source is None and not overrides and not sections and not from_environment:
        return LoadedConfig(config=Config(), origins=dict.fromkeys(schema_keys(), "default"))

    def merged() -> LoadedConfig:
        from tbmem.config.merge import merge_layers

        config, origins = merge_layers(source, variables, overrides, sections)
        return LoadedConfig(config=config, origins=origins)

    return untraced(merged)


def override_section(name: str, section: Section, overrides: Mapping[str, Any]) -> Section:
    """A section with some of its fields replaced.

    Raises:
        ConfigError: A field is unknown, or its value does not fit, or ``section`` is of another type.
    """
    kind = type(getattr(Config(), name))
    if not isinstance(section, kind):
        raise ConfigError(
            f"{name}: takes a {kind.__name__} or keywords such as {fields(kind)[1].name}=..., not {section!r};"
            " a YAML file goes to MemoryCallback"
        )
    if overrides:
        section = getattr(load_config({name: section}, environment={}, **{name: dict(overrides)}), name)
    return section
