"""What blocks older than a recording are for, inferred from sizes and frees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Phase
from tbmem.units import MIB
from tests.analysis.timelines import recording

SIZES = (5, 3, 2)
LAYERS = 3
Rows = list[dict[str, Any]]


def _older(copies: int = 1, layers: int = LAYERS, sizes: tuple[int, ...] = SIZES, **columns: Any) -> Rows:
    """Copies of the blocks of layers, a norm at the end."""
    every = (*sizes * layers, 7) * copies
    return [{"bytes": size * MIB, "address": (1 + n) << 30, **columns} for n, size in enumerate(every)]


def _made(sizes: tuple[int, ...], phase: Phase, begin: int, end: int = -1) -> Rows:
    """Blocks made one after the other; they are freed one after the other from ``end`` on."""
    return [
        {"bytes": size * MIB, "phase": phase, "begin": begin + n, "end": end + n if end >= 0 else -1}
        for n, size in enumerate(sizes)
    ]


GRADIENTS = _made((*SIZES * LAYERS, 7), Phase.BACKWARD, 100)
FORWARD = _made((1,), Phase.FORWARD, 1, 50)


def _mebibytes(analysis: Analysis) -> dict[str, int]:
    """Of each category, what is older than the recording."""
    rows = analysis.timeline.rows
    found = Counter[str]()
    for code, size, begun in zip(analysis.labels.code, rows.bytes, rows.alloc_event, strict=True):
        found[analysis.labels.names[code].lower()] += int(size) // MIB * bool(begun < 0)
    return {name: size for name, size in found.items() if size}


ONE = sum(SIZES) * LAYERS + 7


@pytest.mark.parametrize(("copies", "state"), [(1, 0), (2, 1), (3, 2)])
def test_copies_beside_new_gradients_are_parameters_and_state(copies: int, state: int) -> None:
    found = _mebibytes(analyze(recording(*_older(copies), *FORWARD, *GRADIENTS)))

    assert found == {"parameter": ONE} | ({"optimizer_state": state * ONE} if state else {})


@pytest.mark.parametrize(("copies", "state"), [(2, 0), (3, 1), (4, 2)])
def test_copies_beside_gradients_that_are_added_up_include_these(copies: int, state: int) -> None:
    # given gradients that backward makes, adds to older ones and frees
    added = _made((*SIZES * LAYERS, 7, 1), Phase.BACKWARD, 100, 101)

    found = _mebibytes(analyze(recording(*_older(copies), *FORWARD, *added)))

    assert found == {"parameter": ONE, "gradient": ONE} | ({"optimizer_state": state * ONE} if state else {})


def test_gradients_that_are_freed_together_are_gradients() -> None:
    freed = [{**row, "end": 2 + number} for number, row in enumerate(_older())]

    found = _mebibytes(analyze(recording(*_older(), *freed, *_made((1,), Phase.FORWARD, 60), *GRADIENTS)))

    assert found == {"parameter": ONE, "gradient": ONE}


def test_state_that_a_step_replaces_is_state() -> None:
    # given a step that makes each block of state anew and then frees the old one
    every = [row["bytes"] for row in _older()]
    new = [{"bytes": size, "phase": Phase.OPTIMIZER, "begin": 200 + 2 * n} for n, size in enumerate(every)]
    old = [{**row, "end": 201 + 2 * number} for number, row in enumerate(_older())]

    found = _mebibytes(analyze(recording(*_older(), *old, *FORWARD, *GRADIENTS, *new)))

    assert found == {"parameter": ONE, "optimizer_state": ONE}


def test_an_optimizer_of_one_state_has_no_second() -> None:
    # given a second model of the same sizes, such as an average, and SGD
    stack = (("/w/torch/optim/sgd.py", 9, "step"),)
    step = {"bytes": 8, "phase": Phase.OPTIMIZER, "stack": stack, "begin": 200, "end": 201}

    found = _mebibytes(analyze(recording(*_older(3), *FORWARD, *GRADIENTS, step)))

    assert found == {"parameter": 2 * ONE, "optimizer_state": ONE}


def test_layers_without_gradients_are_frozen_and_single_blocks_are_not() -> None:
    adapters = _made((1, 1, 1, 1), Phase.BACKWARD, 100)
    mine = [{"bytes": MIB, "address": 90 << 30}] * 4

    frozen = _mebibytes(analyze(recording(*_older(), *mine, *FORWARD, *adapters)))
    data = _mebibytes(analyze(recording(*_older(), {"bytes": 64 * MIB}, *FORWARD, *GRADIENTS)))

    assert frozen == {"parameter": ONE + 4}
    assert data == {"parameter": ONE, "unknown": 64}


def test_without_backward_passes_what_stays_is_parameters() -> None:
    passes = [row for n in range(8) for row in _made((1,), Phase.FORWARD, 2 * n, 2 * n + 1)]

    assert _mebibytes(analyze(recording(*_older(layers=4), *passes))) == {"parameter": sum(SIZES) * 4 + 7}


@pytest.mark.parametrize(
    ("copies", "layers", "found"),
    [
        (1, 5, {"parameter": 57}),
        (2, 5, {"unknown": 114}),  # gradients, or one moment
        (3, 5, {"parameter": 57, "optimizer_state": 114}),
        (4, 5, {"parameter": 57, "gradient": 57, "optimizer_state": 114}),
    ],
)
def test_without_events_copies_tell(copies: int, layers: int, found: dict[str, int]) -> None:
    assert _mebibytes(analyze(recording(*_older(copies, layers)))) == found


def test_sizes_of_images_are_no_weights() -> None:
    # given blocks whose sizes share the factor 47, as pixels do, beside layers without it
    images = [{"bytes": 47 * 2**n * 64 * 1024} for n in range(1, 4) for _ in range(2)]

    found = _mebibytes(analyze(recording(*_older(layers=7, sizes=(16, 3, 2)), *images)))

    assert found["parameter"] == 21 * 7 + 7
    assert found["unknown"] == sum(row["bytes"] // MIB for row in images)


def test_the_mark_reaches_the_json() -> None:
    device = analyze(recording(*_older(), *FORWARD, *GRADIENTS)).to_dict()["devices"]["cpu"]

    assert device["inferred"]["PARAMETER"] == ONE * MIB
    assert {share["basis"] for share in device["categories"] if share["name"] == "PARAMETER"} == {"inferred"}
