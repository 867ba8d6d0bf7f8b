"""Merges a YAML file or mapping, a dotlist and TBMEM_* variables with OmegaConf."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tbmem.config.schema import ENVIRONMENT_PREFIX, Config, flatten, schema_keys
from tbmem.config.yaml_file import read_yaml
from tbmem.errors import ConfigError, FileFormatError, closest, did_you_mean, first_line

_REFUSED = (
    OmegaConfBaseException,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)  # exceptions of OmegaConf for values that do not fit
_LONGEST_VALUE = 100
"""Characters of a value in a message."""
_ALIKE = 0.7
"""How alike two names are, of 1, if one may be meant by the other; "foo" and "oom" are by 0.67."""
_SECTIONS = [field.name for field in fields(Config)]
_ARGUMENT = "argument"
"""Origin of what a caller has given in Python."""
_ARGUMENTS = ("on_finding", "sinks", "console")
"""What MemoryCallback takes beside sections."""
_WATCHED = ("model", "models", "module", "optimizer", "optimizers")
"""What is not given to MemoryCallback, but to its ``watch``."""
_WATCH = "a model and its optimizer are given to watch(model, optimizer)"
_KEYS = schema_keys()
_VALUES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "str | None": "a text or null",
    "int | str": "a whole number or a text",
    "tuple[float, ...]": "a list of numbers",
    "tuple[str, ...]": "a list of texts",
}
"""What a field takes, by its annotation in the schema."""
PRESETS = {path.stem: path for path in sorted(Path(__file__).with_name("presets").glob("*.yaml"))}
"""The files of ``configs/`` by name: ``MemoryCallback("light")``."""
_DOTTED_KEY = re.compile(r"\w+(\.\w+)*")


def merge_layers(
    source: object, variables: Mapping[str, str], overrides: Iterable[str], sections: Mapping[str, Any]
) -> tuple[Config, dict[str, str]]:
    """The configuration, in which later layers win, and the origin of each value; raises ConfigError."""
    layers = [
        _layer_of_source(source),
        *_layers_of_environment(variables),
        *_layers_of_dotlist(overrides),
        (_ARGUMENT, _layer_of_mapping(_ARGUMENT, sections, beside=_ARGUMENTS)),
    ]
    merged: Any = OmegaConf.structured(Config)
    for node in (merged, *merged.values()):
        if isinstance(node, DictConfig):
            OmegaConf.set_readonly(node, False)  # the schema's dataclasses are frozen
    origins = dict.fromkeys(_KEYS, "default")
    for origin, layer in layers:
        _require_nested_keys(origin, layer)
        for key, value in flatten(layer).items():
            _set(merged, key, value, origin)
            origins[key] = origin
    return _to_config(merged, origins), {key: origins[key] for key in _KEYS}


def _layer_of_source(source: object) -> tuple[str, Any]:
    if source is None:
        return "default", {}
    if isinstance(source, Config):
        return _ARGUMENT, asdict(source)
    if isinstance(source, (Mapping, DictConfig)):
        return _ARGUMENT, _layer_of_mapping(_ARGUMENT, source)
    if isinstance(source, (str, os.PathLike)):
        return str(source), _layer_of_file(_file_of(source))
    raise ConfigError(f"a config is a YAML file, a mapping or a tbmem Config, not {type(source).__name__}; {_WATCH}")


def _file_of(source: str | os.PathLike[str]) -> Path:
    """The file that is meant: one of the user's, or that of a preset by its name."""
    path = Path(source)
    return PRESETS[str(source)] if str(source) in PRESETS and not path.is_file() else path


def _layer_of_file(path: Path) -> Any:
    try:
        loaded = OmegaConf.load(io.StringIO(read_yaml(path)))
        values = OmegaConf.to_container(loaded) if isinstance(loaded, DictConfig) else None
    except FileNotFoundError:
        what = did_you_mean(path.name, PRESETS) or "run 'tbmem config' to print one"
        reason = f"no such config file, and no preset ({', '.join(PRESETS)}); {what}"
        raise _refusal(str(path), reason) from None
    except UnicodeDecodeError as error:
        reason = "cannot read this config file: not UTF-8 text; save it as UTF-8, or begin with 'tbmem config'"
        raise _refusal(str(path), reason) from error
    except (OSError, FileFormatError) as error:
        reason = getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")
        raise _refusal(str(path), f"cannot read this config file: {reason}") from error
    except yaml.YAMLError as error:
        raise _refusal(str(path), f"not valid YAML{_yaml_reason(error)}") from error
    except Exception as error:  # yaml and OmegaConf raise many kinds on values that are none, or nested too deep
        name = str(path) if str(path).isprintable() else repr(str(path))
        raise _refusal(name, f"cannot be used as a config file: {first_line(error)}") from error
    if values is None:
        raise _refusal(str(path), "a config file must hold sections such as 'profiling:', not a list or text")
    return values


def _yaml_reason(error: yaml.YAMLError) -> str:
    """``' in line 3, column 1: did not find expected ',' or ']' (while parsing a flow sequence in line 2)'``."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f": {error}"
    begins = getattr(error, "context_mark", None)
    context = f" ({error.context} in line {begins.line + 1})" if begins is not None else ""  # type: ignore[attr-defined]
    return f" in line {mark.line + 1}, column {mark.column + 1}: {error.problem}{context}"  # type: ignore[attr-defined]


def _layer_of_mapping(origin: str, values: Mapping[str, Any] | DictConfig, beside: Iterable[str] = ()) -> Any:
    """The values as plain ones; ``beside``: other arguments of the caller, one of which a wrong name may stand for."""
    for name in values:
        if isinstance(name, str) and name.partition(".")[0] not in (*_SECTIONS, *_KEYS):
            others = (*_KEYS, *_SECTIONS, *beside)
            hint = f"; {_WATCH}" if beside and name in _WATCHED else _did_you_mean(name, others, _as_argument)
            raise _refusal(f"{origin}: {name}", f"unknown key{hint}")
    try:
        if isinstance(values, DictConfig):
            # resolved in place: values may refer to the enclosing configuration
            return OmegaConf.to_container(values, resolve=True)
        sections = {
            key: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for key, value in values.items()
        }
        return OmegaConf.to_container(OmegaConf.create(sections))
    except _REFUSED as error:
        raise _refusal(": ".join(filter(None, (origin, _full_key(error)))), first_line(error)) from error


def _layers_of_dotlist(overrides: Iterable[str]) -> Iterable[tuple[str, Any]]:
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, _ = text.partition("=")
        if not equals or not _DOTTED_KEY.fullmatch(key.strip()):
            raise _refusal(repr(text), "an override is written key=value, such as profiling.active=5")
        origin = f"override {text}"
        yield origin, _layer_of_assignment(origin, text)


def _layers_of_environment(variables: Mapping[str, str]) -> Iterable[tuple[str, Any]]:
    keys = {ENVIRONMENT_PREFIX + key.replace(".", "_").upper(): key for key in _KEYS}
    sections = tuple(f"{ENVIRONMENT_PREFIX}{name.upper()}_" for name in _SECTIONS)
    without_section = {ENVIRONMENT_PREFIX + key.rpartition(".")[2].upper(): name for name, key in keys.items()}
    for name in sorted(variables):
        if name in keys:
            yield name, _layer_of_assignment(name, f"{keys[name]}={variables[name]}")
        elif (meant := without_section.get(name)) is not None:
            raise _refusal(name, f"no such setting; did you mean {meant}?")
        elif name.startswith(sections) or (name.startswith(ENVIRONMENT_PREFIX) and closest(name, keys, 0.9)):
            hint = _did_you_mean(name, keys)
            raise _refusal(name, f"no such setting{hint}; unset it or run 'tbmem config' for all keys")


def _layer_of_assignment(origin: str, text: str) -> Any:
    try:
        return OmegaConf.to_container(OmegaConf.from_dotlist([text]))
    except (*_REFUSED, yaml.YAMLError) as error:
        raise _refusal(origin, f"{text.partition('=')[0]}: {error}") from error


def _require_nested_keys(origin: str, layer: Mapping[Any, Any]) -> None:
    """Refuse ``run.name: a`` in a file or a mapping: dotted keys belong to overrides."""
    for key in layer:
        section, dot, name = str(key).partition(".")
        if dot:
            nested = _as_argument(str(key)) if origin == _ARGUMENT else f"'{section}: {{{name}: ...}}'"
            hint = f"; write {nested}" if key in _KEYS else _did_you_mean(str(key))
            raise _refusal(f"{origin}: {key}", f"unknown key{hint}")


def _set(merged: Any, key: str, value: Any, origin: str) -> None:
    """Set one value, unless its key or the value itself is wrong."""
    if value == "???":  # which OmegaConf would take for 'no value given'
        raise _refusal(f"{origin}: {key}", "has no value (???): give one, or leave the key out")
    if key in _SECTIONS and key not in _KEYS:
        if value != {}:
            raise _refusal(f"{origin}: {key}", f"is a section and needs keys below it (got {value!r})")
        return
    if key not in _KEYS:
        parent = next((name for name in _KEYS if key.startswith(f"{name}.")), None)
        if parent is not None:
            raise _refusal(f"{origin}: {parent}", f"must be {_expected(parent)}, without keys below it")
        section = key.partition(".")[0]
        name = key if section in _SECTIONS else section
        raise _refusal(f"{origin}: {name}", f"unknown key{_did_you_mean(name)}")
    if isinstance(value, str) and _expected(key) == "a list of texts":
        value = [part.strip() for part in value.split(",")]  # output.sinks=wandb,mlflow
    try:
        OmegaConf.update(merged, key, value)
    except _REFUSED as error:
        shown = "null" if value is None else repr(value)
        shown = shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}..."
        raise _refusal(f"{origin}: {key}", f"must be {_expected(key)} (got {shown})") from error


def _expected(key: str) -> str:
    """The values that a key takes, in words."""
    *section, name = key.split(".")
    schema = getattr(Config(), section[0]) if section else Config
    return next(_VALUES[str(field.type)] for field in fields(schema) if field.name == name)


def _full_key(error: BaseException) -> str:
    return str(getattr(error, "full_key", None) or "")


def _to_config(merged: Any, origins: Mapping[str, str]) -> Config:
    try:
        config: Config = OmegaConf.to_object(merged)  # type: ignore[assignment]
    except ConfigError as error:
        origin = origins.get(str(error).split(" ", 1)[0].rstrip(":"), "default")
        raise ConfigError(str(error) if origin == "default" else f"{origin}: {error}") from error
    except _REFUSED as error:
        key = _full_key(error) or "config"
        raise _refusal(f"{origins.get(key, 'config')}: {key}", first_line(error)) from error
    return config


def _did_you_mean(
    name: str, known: Iterable[str] = (*_KEYS, *_SECTIONS), written: Callable[[str], str] = lambda key: key
) -> str:
    section, _, last = name.rpartition(".")
    if section not in _SECTIONS:
        meant = closest(name, known) or next((key for key in _KEYS if key.endswith(f".{name}")), "")
        return f"; did you mean {written(meant)}?" if meant else "; run 'tbmem config' for all keys"
    # within a section that is there its name would make all keys look alike
    names = [key.rpartition(".")[2] for key in _KEYS if key.startswith(f"{section}.")]
    keys = [f"{section}.{close}" for close in [closest(last, names, _ALIKE)] if close]
    elsewhere = keys or [key for key in _KEYS if key.endswith(f".{last}")]
    return f"; did you mean {elsewhere[0]}?" if elsewhere else f"; {section} has {', '.join(names)}"


def _as_argument(key: str) -> str:
    """A key as it is written in Python: ``run={"logdir": ...}``."""
    section, dot, name = key.partition(".")
    return f'{section}={{"{name}": ...}}' if dot else key


def _refusal(source: str, reason: str) -> ConfigError:
    """The error with its source and reason, always on one line."""
    return ConfigError(" ".join(f"{source}: {reason}".split()))
