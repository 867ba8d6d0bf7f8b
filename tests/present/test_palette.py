"""Colours: the reference's five, and that people who see fewer colours can tell all of them apart."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from tbmem import web
from tbmem.analysis.plots.stacked_series import OTHER
from tbmem.model.category import Category
from tbmem.present.palette import PHASES, category_colour

# how full dichromats see linear RGB: Machado, Oliveira and Fernandes, 2009
SIGHT = {
    "all": np.eye(3),
    "no red": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no green": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no blue": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
THEME, STYLE = web.files(".js")["theme.js"], web.files(".css")["style.css"]
FOR_DARK = dict(re.findall(r'\["(#\w{6})", "(#\w{6})"\]', THEME))
MODES = ("light", "dark")
INFERRED = (
    *("PARAMETER", "ACTIVATION", "GRADIENT", "OPTIMIZER_STATE", "TEMPORARY", "INPUT", "COMMUNICATION", "FSDP"),
    *("Expert/MoE", "Attention", "Embedding", "Normalization", "Loss", "Convolution", "Linear/MatMul"),
)
ALIKE = 0.05
"""Distance in OKLab below which areas side by side begin to look the same."""
READABLE = 4.5
"""Contrast of text: WCAG 2.2, level AA."""
TEXTS = ("ink", "muted", "good-ink", "warn-ink", "bad-ink", "accent-ink")
GROUNDS = ("ground", "raised", "soft")


def test_colours_of_the_five() -> None:
    # the reference's blue, orange, yellow, green and red, in tones that colour-blind people can tell apart
    names = ("PARAMETER", "ACTIVATION", "GRADIENT", "OPTIMIZER_STATE", "TEMPORARY")
    assert [category_colour(name) for name in names] == ["#0072B2", "#E69F00", "#F0E442", "#009E73", "#D55E00"]
    assert category_colour("My own") == category_colour("My own")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sight", list(SIGHT))
@pytest.mark.parametrize("names", [[*Category.__members__, OTHER], [*INFERRED, "UNKNOWN", OTHER]])
def test_no_two_look_alike(names: list[str], sight: str, mode: str) -> None:
    shown = FOR_DARK if mode == "dark" else {}
    colours = {name: shown.get(category_colour(name), category_colour(name)) for name in names}
    seen = {name: _oklab(colour, SIGHT[sight]) for name, colour in colours.items()}

    near = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(names, 2)}

    assert min(near.values()) > ALIKE, min(near, key=lambda pair: near[pair])


@pytest.mark.parametrize("mode", MODES)
def test_text_stands_out_from_its_ground(mode: str) -> None:
    # given the style sheet's colours, and those of the canvases
    sheet = STYLE.partition('[data-theme="dark"]')[2 * (mode == "dark")]
    named = dict(re.findall(r"--([\w-]+): (#\w+);", sheet))
    canvas = dict(re.findall(r'(\w+): "(#\w{6})"', THEME.partition(f"const {mode.upper()} = ")[2].partition("}")[0]))
    pairs = [(named[text], named[ground]) for text in TEXTS for ground in GROUNDS]
    pairs += [(canvas[text], canvas["paper"]) for text in ("ink", "muted")]
    pairs += [("#1F2933", colour) for name, colour in PHASES.items() if name != "OTHER"]

    for text, ground in pairs:
        low, high = sorted((_brightness(text), _brightness(ground)))
        assert (high + 0.05) / (low + 0.05) >= READABLE, (text, ground)


def _linear(colour: str) -> NDArray[np.float64]:
    """Linear RGB of ``#rgb`` or ``#rrggbb``."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    rgb = np.array([int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def _brightness(colour: str) -> float:
    return float(_linear(colour) @ [0.2126, 0.7152, 0.0722])


def _oklab(colour: str, sight: NDArray[np.float64]) -> NDArray[np.float64]:
    """OKLab (Ottosson, 2020) of what is seen of a colour."""
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
    lab = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    seen: NDArray[np.float64] = lab @ np.cbrt(cones @ np.clip(sight @ _linear(colour), 0, 1))
    return seen
