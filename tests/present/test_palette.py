"""Colours: the reference's five, and that people who see fewer colours can tell all of them apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from tbmem.analysis.plots.stacked_series import OTHER
from tbmem.model.category import Category
from tbmem.present.palette import category_colour

# how full dichromats see linear RGB: Machado, Oliveira and Fernandes, 2009
SIGHT = {
    "all": np.eye(3),
    "no red": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no green": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
}
INFERRED = (
    *("PARAMETER", "ACTIVATION", "GRADIENT", "OPTIMIZER_STATE", "TEMPORARY", "INPUT", "COMMUNICATION", "FSDP"),
    *("Expert/MoE", "Attention", "Embedding", "Normalization", "Loss", "Convolution", "Linear/MatMul"),
)
ALIKE = 15
"""Distance in CIELAB below which areas side by side begin to look the same."""


def test_colours_of_the_five() -> None:
    # the reference's blue, orange, yellow, green and red, in tones that colour-blind people can tell apart
    names = ("PARAMETER", "ACTIVATION", "GRADIENT", "OPTIMIZER_STATE", "TEMPORARY")
    assert [category_colour(name) for name in names] == ["#0072B2", "#E69F00", "#F0E442", "#009E73", "#D55E00"]
    assert category_colour("My own") == category_colour("My own")


@pytest.mark.parametrize("sight", list(SIGHT))
@pytest.mark.parametrize("names", [[*Category.__members__, OTHER], [*INFERRED, "UNKNOWN", OTHER]])
def test_no_two_look_alike(names: list[str], sight: str) -> None:
    seen = {name: _lab(category_colour(name), SIGHT[sight]) for name in names}

    near = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(names, 2)}

    assert min(near.values()) > ALIKE, min(near, key=lambda pair: near[pair])


def _lab(colour: str, sight: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIELAB of what is seen of a colour."""
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(xyz @ np.clip(sight @ linear, 0, 1) / np.array([0.9505, 1, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
