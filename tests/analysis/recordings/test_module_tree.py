"""Modules of rows: from the recording, or from the names of tensors."""

from __future__ import annotations

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.module_tree import merge_layers
from tbmem.model.category import Category
from tests.analysis.timelines import book, recording


@pytest.mark.parametrize(
    ("path", "merged"),
    [
        ("model.layers.11.mlp", "model.layers.*.mlp"),
        ("GPT_0.Block_3.Linear_12", "GPT_*.Block_*.Linear_*"),
        ("blocks.0", "blocks.*"),
        ("0.weight", "*.weight"),
        ("conv2d.layer1.bn2", "conv2d.layer1.bn2"),
    ],
)
def test_layers_are_merged(path: str, merged: str) -> None:
    assert merge_layers(path) == merged


def test_the_tree() -> None:
    rows = [
        {"bytes": 100, "begin": 0, "module": "Net_0.Block_0"},
        {"bytes": 50, "begin": 1, "module": "Net_0.Block_1"},
        {"bytes": 5, "begin": 2, "module": "Net_0"},
        {"bytes": 1, "begin": 3},
    ]
    tree = analyze(recording(*rows)).devices[0].modules

    found = {node.path: (node.bytes, node.own_bytes, node.count) for node in tree.walk()}
    assert found == {
        "": (156, 0, 4),
        "Net_0": (155, 5, 3),
        "Net_0.Block_0": (100, 100, 1),
        "Net_0.Block_1": (50, 50, 1),
        "(no module)": (1, 1, 1),
    }
    assert [child.name for child in tree.children] == ["Net_0", "(no module)"]


def test_named_tensors_belong_to_their_modules() -> None:
    notes = book(
        (0, 1, 8, Category.PARAMETER, "layers.0.mlp.weight"),
        (0, 2, 8, Category.OPTIMIZER_STATE, "layers.1.mlp.weight.exp_avg"),
        (0, 3, 8, Category.GRADIENT, "scale"),
        (2.5, 4, 8, Category.ACTIVATION, "layers.0"),
    )
    device = analyze(recording({"bytes": 8, "address": 4, "begin": 2}), book=notes).devices[0]

    assert {share.name: share.bytes for share in device.by_module} == {"layers.*.mlp": 16, "scale": 8, "layers.*": 8}
