"""Weights that a trace has only in the inputs of operators."""

from __future__ import annotations

from typing import Any

from tbmem.analysis.recordings.analyzer import analyze
from tests.analysis.timelines import recording

TABLE = ["aten::embedding", "float", [1000, 64], 2]
LINEAR = ["aten::linear", "float", [256, 64], 6]
OUTPUT = ["aten::linear", "float", [1000, 64], 2]
BYTES = {"table": 256_000, "linear": 65_536}


def _found(older: int, *weights: list[Any]) -> dict[str, tuple[int, int]]:
    device = {"name": "cuda:0", "type": 1, "index": 0, "base_bytes": older, "unlisted_bytes": older}
    timeline = recording({"bytes": 8, "begin": 0, "phase": 2}, device=device, about={"weights": list(weights)})
    main = analyze(timeline).main
    assert main.peak.bytes == older + 8
    return {share.name: (share.bytes, share.count) for share in main.by_category if share.bytes > 8}


def test_weights_of_one_pass_are_parameters() -> None:
    # given two passes of a model with three linear layers, and older memory that is something else
    older = BYTES["table"] + 3 * BYTES["linear"] + 50_000

    assert _found(older, TABLE, LINEAR) == {"PARAMETER": (older - 50_000, 4), "UNKNOWN": (50_000, 0)}


def test_an_output_layer_may_be_the_embedding() -> None:
    tied, both = (copies * BYTES["table"] + 3 * BYTES["linear"] for copies in (1, 2))

    assert _found(tied, TABLE, LINEAR, OUTPUT) == {"PARAMETER": (tied, 4)}
    assert _found(both, TABLE, LINEAR, OUTPUT) == {"PARAMETER": (both, 5)}


def test_weights_beyond_older_memory_are_not_on_the_device() -> None:
    assert _found(BYTES["linear"], TABLE, LINEAR) == {"PARAMETER": (BYTES["linear"], 1)}


def test_a_weight_is_named_by_type_and_shape() -> None:
    device = {"name": "cuda:0", "type": 1, "index": 0, "base_bytes": 65_536, "unlisted_bytes": 65_536}
    timeline = recording({"bytes": 8, "begin": 0}, device=device, about={"weights": [LINEAR]})

    (weight,) = [one for one in analyze(timeline).main.top if one.category == "PARAMETER"]

    assert (weight.name, weight.basis) == ("aten::linear: float [256, 64]", "inferred")
