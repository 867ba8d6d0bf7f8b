"""Reads a YAML file of category rules into a table."""

from __future__ import annotations

import os
from typing import Any

import yaml

from tbmem.analysis.recordings.category_rules import DEFAULT_TABLE, CategoryTable
from tbmem.errors import ConfigError


def load_rules(path: str | os.PathLike[str]) -> CategoryTable:
    """Read rules that go before the default ones.

    Args:
        path: A YAML file, ``categories: [{label: Vision, words: [patch_embed, vit], category: ACTIVATION}]``.

    Raises:
        ConfigError: The file cannot be read, is no YAML, or holds something else.
    """
    place = os.fspath(path)
    try:
        with open(place, encoding="utf-8") as file:
            data: Any = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{place}: not YAML: {' '.join(str(error).split())}") from error
    rules = data.get("categories") if isinstance(data, dict) else data
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ConfigError(f"{place}: holds no list 'categories' of rules, each with a label and words")
    try:
        return DEFAULT_TABLE.extended(rules)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
