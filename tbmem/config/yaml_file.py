"""Reads the text of a YAML file, and refuses one whose aliases stand for more than the file could hold."""

from __future__ import annotations

import os

import yaml

from tbmem.regular_files import open_regular
from tbmem.units import KIB, format_bytes

_LARGEST = 256 * KIB
"""Bytes of a file of settings or rules: the annotated default configuration has 20 thousand."""
_MOST_VALUES = 100_000


def read_yaml(path: str | os.PathLike[str]) -> str:
    """The text of a file, whose values can be built without taking more memory and time than it has bytes.

    Raises:
        yaml.YAMLError: It is no YAML, too large, or its aliases repeat one another.
        OSError: It cannot be read.
        UnicodeDecodeError: It is no text.
    """
    with open_regular(path) as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise yaml.YAMLError(f"larger than {format_bytes(_LARGEST)}, which no file of settings is")
    text = content.decode()
    if "&" in text and "*" in text and _values(text) > _MOST_VALUES:
        raise yaml.YAMLError(f"its aliases stand for more than {_MOST_VALUES} values: write fewer of them")
    return text


def _values(text: str) -> int:
    """How many values a document has if each alias is replaced by what it stands for."""
    sizes: dict[str, int] = {}
    counts, anchors = [0], [""]
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            counts[-1] += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
            sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor or "")
        elif isinstance(event, yaml.CollectionEndEvent):
            count = sizes[anchors.pop()] = counts.pop()
            counts[-1] += count
    return counts[0]
