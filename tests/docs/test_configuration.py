"""The configuration reference says of every key what it means, its unit, what is allowed and when to change it."""

from __future__ import annotations

import pytest

from docs.site.configuration import Key, keys, page
from tbmem.config import load_with_origins
from tbmem.config.schema import schema_keys

KEYS = list(keys())


def test_every_key_has_its_place() -> None:
    assert [key.name for key in KEYS] == schema_keys()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_key(key: Key) -> None:
    value = load_with_origins().values()[key.name]

    assert key.meaning.endswith((".", ")"))
    assert key.when.endswith((".", ")"))
    assert key.allowed
    # numbers and sizes have a unit; lists of ranks and of names have none
    is_quantity = not isinstance(value, (bool, str)) and value is not None and not key.name.endswith(("ranks", "sinks"))
    assert bool(key.unit) == (is_quantity or "MiB" in key.default or "KiB" in key.default)
    # and the variable sets it
    loaded = load_with_origins(environment={key.variable: key.default})
    assert loaded.origins[key.name] == key.variable
    assert loaded.values()[key.name] == value


def test_the_page_has_the_rules() -> None:
    text = page().text

    for words in (
        "at least 6",
        "three ascending percentages up to 100",
        "step or run",
        "the name of a folder, or `null`",
    ):
        assert words in text
