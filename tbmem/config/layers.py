"""Merges a YAML file or mapping, a dotlist and TBMEM_* variables with OmegaConf."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from tbmem.config.schema import ENVIRONMENT_PREFIX, Config, flatten, schema_keys
from tbmem.errors import ConfigError

_REFUSED = (OmegaConfBaseException, TypeError, ValueError)
"""What OmegaConf raises when a value does not fit."""
_DOTTED_KEY = re.compile(r"\w+(\.\w+)*")


def merge_layers(
    source: object, variables: Mapping[str, str], overrides: Iterable[str], sections: Mapping[str, Any]
) -> tuple[Config, dict[str, str]]:
    """Merge all layers, later ones win: the checked configuration, and the origin of each value by its full key.

    Raises:
        ConfigError: A layer cannot be read, a key is unknown, or a value does not fit.
    """
    layers = [
        _layer_of_source(source),
        *_layers_of_environment(variables),
        *_layers_of_dotlist(overrides),
        ("argument", _layer_of_mapping("argument", sections)),
    ]
    merged = OmegaConf.structured(Config)
    origins = dict.fromkeys(schema_keys(), "default")
    for origin, layer in (one for one in layers if one[1]):
        merged = _merge(merged, layer, origin)
        origins.update(dict.fromkeys(flatten(OmegaConf.to_container(layer)), origin))
    return _to_config(merged, origins), origins


def _layer_of_source(source: object) -> tuple[str, DictConfig]:
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
    for key, value in flatten(OmegaConf.to_container(layer)).items():
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
    keys = {_variable(key): key for key in schema_keys()}
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


def _merge(base: Any, layer: DictConfig, origin: str) -> Any:
    _reject_scalar_sections(layer, origin)
    try:
        return OmegaConf.merge(base, layer)
    except ConfigKeyError as error:
        key = str(error.full_key or error.key)
        hint = _did_you_mean(key, schema_keys() + [field.name for field in fields(Config)])
        raise _refusal(f"{origin}: {key}", f"unknown key{hint}") from error
    except _REFUSED as error:
        key = _full_key(error) or _culprit(base, layer)
        text = _first_line(error)
        fits = "the value does not fit" if "$" in text or isinstance(error, TypeError) else text
        raise _refusal(f"{origin}: {key}", fits) from error


def _culprit(base: Any, layer: DictConfig) -> str:
    """The key whose value cannot be merged, where OmegaConf's error does not name it."""
    for key, value in flatten(OmegaConf.to_container(layer)).items():
        single = OmegaConf.create({})
        OmegaConf.update(single, key, value)
        try:
            OmegaConf.merge(base, single)
        except _REFUSED:
            return next((known for known in schema_keys() if key.startswith(known)), key)
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


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "; run 'tbmem config' for all keys"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _refusal(place: str, reason: str) -> ConfigError:
    """The error for a place and a reason, always on one line."""
    return ConfigError(" ".join(f"{place}: {reason}".split()))
