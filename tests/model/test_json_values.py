"""What JSON of unknown origin may hold."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.model.json_values import encodable, plain, read_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, true, null, "x"]}', {"a": [1, 2.5, True, None, "x"]}),
        ("[NaN, Infinity, -Infinity, 1e400]", [None] * 4),
        (f"[{2**64 - 1}, {2**64}, {-(2**63)}, {10**400}]", [2**64 - 1, None, -(2**63), None]),
        ('["\\ud800x", "caf\\u00e9", "\\ud83d\\ude00"]', ["?x", "café", "😀"]),
        ('{"\\udfff": 1}', {"?": 1}),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_what_cannot_be_a_reading_is_none(text: str, value: Any) -> None:
    assert read_json(text) == read_json(text.encode()) == value


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"[" * 1500 + b"]" * 1500, b"1" * 5000])
def test_anything_else_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(data)


def test_plain_values_of_python() -> None:
    assert plain({"a": (1, float("nan"))}) == {"a": [1, None]}
    assert encodable("a\udcffb") == "a?b"


def test_what_is_not_utf_8_is_said_in_words() -> None:
    with pytest.raises(ValueError, match="^not UTF-8 text$"):
        read_json(b'{"peaks": "\xff"}')
