"""Colour-blind safe colours of categories, phases and parts of memory.

Blue, orange, yellow, green and red from the palette of Okabe and Ito stand for parameters, activations, gradients,
optimizer state and temporaries. The others were chosen to differ from each other also with protanopia and
deuteranopia; a test simulates both.
"""

from __future__ import annotations

import zlib

from tbmem.model.finding import FindingKind, Severity

BLUE, ORANGE, YELLOW, GREEN, RED = "#0072B2", "#E69F00", "#F0E442", "#009E73", "#D55E00"
SKY, PINK, GREY, LIGHT, INK, MUTED = "#56B4E9", "#CC79A7", "#A6A9AC", "#D5D8DC", "#1F2933", "#5F6B76"

ON_ANY_GROUND = {
    **{BLUE: "#2A8CCB", RED: "#D9661A", ORANGE: "#B97F00", YELLOW: "#98893A", GREEN: "#159B72"},
    **{MUTED: "#7F8A94", PINK: "#B56A94"},
}
"""The same colours where the ground is not known, as in a notebook: they stand out from a light and from a dark one."""

_CATEGORIES = {
    "PARAMETER": BLUE,
    "ACTIVATION": ORANGE,
    "GRADIENT": YELLOW,
    "OPTIMIZER_STATE": GREEN,
    "TEMPORARY": RED,
    "INPUT": "#47B7E8",
    "BUFFER": "#183263",
    "AUTOGRAD_DETAIL": "#7377FF",
    "COMMUNICATION": "#1C0070",
    "FSDP": "#0C15F8",
    "Expert/MoE": "#7D0000",
    "KV cache": "#B08FD8",
    "Attention": "#530025",
    "Embedding": "#7377FF",
    "Normalization": "#2AFD8F",
    "Loss": "#002CBF",
    "Convolution": "#67D88A",
    "Linear/MatMul": "#396470",
    "UNKNOWN": GREY,
    "(other)": LIGHT,
}
_RULE_COLOURS = ("#661100", "#6699CC", "#AA4466", "#DDCC77", "#5E8C31", "#4477AA", "#C0A0D0", "#A65628")
"""Colours of categories from a user's own rules."""

PHASES = {"FORWARD": "#F6D58A", "BACKWARD": "#9CC9E5", "OPTIMIZER": "#96D3BE", "SETUP": LIGHT, "OTHER": "#F1F3F5"}

ALLOCATED, IN_GAPS, IN_SEGMENTS, PENDING = BLUE, RED, LIGHT, PINK
"""Parts of reserved memory."""

_POOLS = (SKY, ORANGE, GREEN, PINK, YELLOW, BLUE, RED)

GRADES = {"excellent": GREEN, "good": ORANGE, "poor": RED, "unknown": GREY}
_SEVERITIES = {Severity.INFO: BLUE, Severity.WARNING: ORANGE, Severity.CRITICAL: RED}
_KINDS = {FindingKind.DISMISSED: GREEN, FindingKind.STABLE: GREEN, FindingKind.SUSPECT: YELLOW}


def category_colour(name: str) -> str:
    """Colour of a category, the same in every chart."""
    return _CATEGORIES.get(name) or _RULE_COLOURS[zlib.crc32(name.encode()) % len(_RULE_COLOURS)]


def pool_colour(number: int) -> str:
    """Colour of a memory pool; the default one is the first."""
    return _POOLS[number % len(_POOLS)]


def finding_colour(kind: FindingKind, severity: Severity) -> str:
    """Colour of a finding."""
    return _KINDS.get(kind, _SEVERITIES[severity])
