"""A YAML file or mapping, a dotlist and TBMEM_* variables go in, a Config with each value's origin comes out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from tbmem.config.schema import Config, MonitorConfig, ProfilingConfig
from tbmem.errors import ConfigError

ENVIRONMENT_PREFIX = "TBMEM_"
"""``TBMEM_PROFILING_ACTIVE=5`` sets ``profiling.active``; ``TBMEM_ENABLED=0`` sets ``enabled``."""

_REFUSED = (OmegaConfBaseException, TypeError, ValueError)
"""What OmegaConf raises when a value does not fit."""
_DOTTED_KEY = re.compile(r"\w+(\.\w+)*")

Section = TypeVar("Section", MonitorConfig, ProfilingConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedConfig:
    """A configuration and where each of its values came from."""

    config: Config
    origins: Mapping[str, str]
    """Full key to origin: ``'default'``, a file's path, an override as typed, or a variable's name."""

    def values(self) -> dict[str, Any]:
        """Every value by its full key, in the schema's order."""
        return _flatten(OmegaConf.to_container(OmegaConf.structured(self.config)))


ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | Config | LoadedConfig | None
"""A YAML file, a mapping of sections, a ready Config, one that was loaded before, or nothing (the defaults)."""


def load_config(
    source: ConfigSource = None,
    overrides: Iterable[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    **sections: Any,
) -> Config:
    """The checked configuration that all layers give; see ``load_with_origins`` for arguments and errors."""
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
        source: A YAML file, a mapping of sections (an OmegaConf node too), or ``None``. A Config is final: the
            environment is in it already, or its maker did not want it. A LoadedConfig is checked as well.
        overrides: A dotlist, ``["profiling.active=5", "run.logdir=/scratch"]``.
        environment: Variables to read ``TBMEM_<SECTION>_<KEY>`` from; ``os.environ`` by default.
        **sections: Values by section, ``profiling={"active": 5}``, ``enabled=False``.

    Returns:
        The configuration with the origin of each value.

    Raises:
        ConfigError: A file is missing or is no YAML mapping, a key is unknown, or a value does not fit;
            the message is one line that names the file and the full key.
    """
    variables: Mapping[str, str] = os.environ if environment is None else environment
    if isinstance(source, LoadedConfig):
        if not overrides and not sections:
            return source
        source = source.config
    if isinstance(source, Config):
        variables = {}
    layers = [
        _layer_of_source(source),
        *_layers_of_environment(variables),
        *_layers_of_dotlist(overrides),
        ("argument", _layer_of_mapping("argument", sections)),
    ]
    merged = OmegaConf.structured(Config)
    origins = dict.fromkeys(_schema_keys(), "default")
    for origin, layer in (one for one in layers if one[1]):
        merged = _merge(merged, layer, origin)
        origins.update(dict.fromkeys(_flatten(OmegaConf.to_container(layer)), origin))
    return LoadedConfig(config=_to_config(merged, origins), origins=origins)


def override_section(name: str, section: Section, overrides: Mapping[str, Any]) -> Section:
    """A section with some of its fields replaced.

    Args:
        name: What the section is called, ``'profiling'``.
        section: The section as it is.
        overrides: Values by field.

    Raises:
        ConfigError: A field is unknown, or its value does not fit; the section is none.
    """
    _check_section(name, section)
    if not overrides:
        return section
    config = load_config({name: _plain(section)}, environment={}, **{name: dict(overrides)})
    replaced: Section = getattr(config, name)
    return replaced


def _check_section(name: str, section: object) -> None:
    kind = type(getattr(Config(), name))
    if not isinstance(section, kind):
        raise ConfigError(
            f"{name}: takes a {kind.__name__} or keywords such as {fields(kind)[1].name}=..., not {section!r};"
            " a YAML file goes to MemoryCallback"
        )


def _layer_of_source(source: ConfigSource) -> tuple[str, DictConfig]:
    if source is None:
        return "default", OmegaConf.create({})
    if isinstance(source, Config):
        return "argument", OmegaConf.create(asdict(source))
    if isinstance(source, (Mapping, DictConfig)):
        return "argument", _layer_of_mapping("argument", source)
    if isinstance(source, (str, os.PathLike)):
        return _layer_of_file(Path(source))
    raise ConfigError(f"a config is a YAML file, a mapping or a tbmem Config, not {type(source).__name__}")


def _layer_of_file(path: Path) -> tuple[str, DictConfig]:
    try:
        loaded = OmegaConf.load(path)
    except FileNotFoundError:
        raise _refusal(str(path), "no such config file; run 'tbmem config' to print one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(str(path), f"cannot read this config file: {error}") from error
    except yaml.YAMLError as error:
        raise _refusal(str(path), f"not valid YAML: {error}") from error
    except _REFUSED as error:
        name = str(path) if str(path).isprintable() else repr(str(path))
        raise _refusal(name, f"cannot be used as a config file: {_first_line(error)}") from error
    if not isinstance(loaded, DictConfig):
        raise _refusal(str(path), "a config file must hold sections such as 'profiling:', not a list or text")
    return str(path), _closed(str(path), loaded)


def _layer_of_mapping(origin: str, values: Mapping[str, Any] | DictConfig) -> DictConfig:
    # a node is resolved where it stands: its values may refer to the configuration that it is a part of
    items = _to_plain(origin, values) if isinstance(values, DictConfig) else values
    layer: Any = OmegaConf.create({})
    for key, value in items.items():
        try:
            layer = OmegaConf.merge(layer, {key: _plain(value)})
        except _REFUSED as error:
            raise _refusal(f"{origin}: {_full_key(error) or key!s}", _first_line(error)) from error
    return _closed(origin, layer)


def _to_plain(origin: str, node: DictConfig) -> dict[Any, Any]:
    try:
        plain = OmegaConf.to_container(node, resolve=True)
    except _REFUSED as error:
        raise _refusal(f"{origin}: {_full_key(error)}", _first_line(error)) from error
    assert isinstance(plain, dict)
    return plain


def _closed(origin: str, layer: DictConfig) -> DictConfig:
    """Refuse ``???``, which OmegaConf would take for 'no value given'."""
    for key, value in _flatten(OmegaConf.to_container(layer)).items():
        if value == "???":
            raise _refusal(f"{origin}: {key}", "has no value (???): give one, or leave the key out")
    return layer


def _plain(value: Any) -> Any:
    """A section given as its own dataclass, as the mapping that OmegaConf can merge."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _layers_of_dotlist(overrides: Iterable[str]) -> Iterable[tuple[str, DictConfig]]:
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, _ = text.partition("=")
        if not equals or not _DOTTED_KEY.fullmatch(key.strip()):
            raise _refusal(repr(text), "an override is written key=value, such as profiling.active=5")
        origin = f"override {text}"
        yield origin, _layer_of_assignment(origin, text)


def _layers_of_environment(variables: Mapping[str, str]) -> Iterable[tuple[str, DictConfig]]:
    keys = {_variable(key): key for key in _schema_keys()}
    sections = tuple(_variable(field.name) + "_" for field in fields(Config))
    for name in sorted(variables):
        if name in keys:
            yield name, _layer_of_assignment(name, f"{keys[name]}={variables[name]}")
        elif name.startswith(sections) or (name.startswith(ENVIRONMENT_PREFIX) and _is_typo(name, keys)):
            hint = _did_you_mean(name, keys)
            raise _refusal(name, f"no such setting{hint}; unset it or run 'tbmem config' for all keys")


def _is_typo(name: str, known: Iterable[str]) -> bool:
    return bool(get_close_matches(name, list(known), n=1, cutoff=0.9))


def _layer_of_assignment(origin: str, text: str) -> DictConfig:
    """One ``key=value`` as a layer."""
    try:
        layer = OmegaConf.from_dotlist([text])
    except (*_REFUSED, yaml.YAMLError) as error:
        raise _refusal(origin, f"{text.partition('=')[0]}: {error}") from error
    return _closed(origin, layer)


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def _schema_keys() -> list[str]:
    return list(_flatten(asdict(Config())))


def _merge(base: Any, layer: DictConfig, origin: str) -> Any:
    _reject_scalar_sections(layer, origin)
    try:
        return OmegaConf.merge(base, layer)
    except ConfigKeyError as error:
        key = str(error.full_key or error.key)
        hint = _did_you_mean(key, _schema_keys() + [field.name for field in fields(Config)])
        raise _refusal(f"{origin}: {key}", f"unknown key{hint}") from error
    except _REFUSED as error:
        key = _full_key(error) or _culprit(base, layer)
        text = _first_line(error)
        fits = "the value does not fit" if "$" in text or isinstance(error, TypeError) else text
        raise _refusal(f"{origin}: {key}", fits) from error


def _culprit(base: Any, layer: DictConfig) -> str:
    """The key whose value cannot be merged, where OmegaConf's error does not name it."""
    for key, value in _flatten(OmegaConf.to_container(layer)).items():
        single = OmegaConf.create({})
        OmegaConf.update(single, key, value)
        try:
            OmegaConf.merge(base, single)
        except _REFUSED:
            return next((known for known in _schema_keys() if key.startswith(known)), key)
    return "config"


def _full_key(error: BaseException) -> str:
    return str(getattr(error, "full_key", None) or "")


def _reject_scalar_sections(layer: DictConfig, origin: str) -> None:
    """Say it plainly where a whole section was given one value; OmegaConf's own message has no key."""
    for section in fields(Config):
        if section.name == "enabled" or section.name not in layer:
            continue
        if not isinstance(layer._get_node(section.name), DictConfig) or layer[section.name] is None:
            got = layer[section.name]
            raise _refusal(f"{origin}: {section.name}", f"is a section and needs keys below it (got {got!r})")


def _to_config(merged: Any, origins: Mapping[str, str]) -> Config:
    try:
        config = OmegaConf.to_object(merged)
    except ConfigError as error:
        key = str(error).split(" ", 1)[0].rstrip(":")
        origin = origins.get(key, "default")
        raise ConfigError(str(error) if origin == "default" else f"{origin}: {error}") from error
    except _REFUSED as error:
        key = _full_key(error) or "config"
        raise _refusal(f"{origins.get(key, 'config')}: {key}", _first_line(error)) from error
    assert isinstance(config, Config)
    return config


def _flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in (values or {}).items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "; run 'tbmem config' for all keys"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _refusal(place: str, reason: str) -> ConfigError:
    """The error for a place and a reason, always on one line."""
    return ConfigError(" ".join(f"{place}: {reason}".split()))
