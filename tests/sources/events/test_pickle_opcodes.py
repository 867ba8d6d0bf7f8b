"""Opcodes that make a pickle costly."""

from __future__ import annotations

import pickle

import pytest

from tbmem.sources.events.pickle_opcodes import check_opcodes, may_collide


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_of_any_protocol_are_harmless(protocol: int) -> None:
    shared = {"address": (1 << 64) - 1, "pool": (0, 1), "name": "x" * 300, "share": 0.5, "none": None}

    assert check_opcodes(pickle.dumps([shared, shared, {1: [True, -5, 70_000]}], protocol)) is None


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(("value", "problem"), [({1 << 80: 0}, "number"), (((1, 2), (3, 4)), "tuple")])
def test_costly_values_of_any_protocol_are_named(protocol: int, value: object, problem: str) -> None:
    found = check_opcodes(pickle.dumps(value, protocol))

    assert found is not None
    assert problem in found


def test_an_index_in_the_last_bytes_is_seen() -> None:
    assert check_opcodes(b"\x80\x04\x8c\x00r\xff\xff\xff\x07.") is not None


def test_large_numbers_are_counted_at_most() -> None:
    assert may_collide(pickle.dumps([1 << 80] * 1 + [1 << 90, 5, 1 << 40])) == 2
