"""Figures with a heading, written as PNG. matplotlib is loaded when one is drawn, never at import."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tbmem.present.labels import unit_for
from tbmem.present.palette import INK, LIGHT, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LIGHT,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": "#E9ECEF",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "path.simplify": True,
}


@contextmanager
def picture(path: Path, title: str, subtitle: str, width: float = 12, height: float = 6.5) -> Iterator[Figure]:
    """A figure with a heading, written when the block ends.

    Args:
        path: The PNG.
        title: First line, large.
        subtitle: Second line, small; what it is of.
        width: In inches, of 120 dots.
        height: The same.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # it leaves no room for texts of a figure: two lines are kept free above the drawings
    room = 0.72 / height
    arrangement = ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.98, 0.98 - room), w_pad=0.08, h_pad=0.08)
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # a name may have letters that the font lacks: a box stands for them
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=arrangement)
        FigureCanvasAgg(figure)
        figure.text(0.16 / width, 1 - 0.14 / height, title, fontsize=14, fontweight="bold", va="top")
        figure.text(0.16 / width, 1 - 0.44 / height, subtitle, fontsize=9.5, color=MUTED, va="top")
        yield figure
        figure.savefig(path, format="png")


def say(axes: Axes, text: str) -> None:
    """Write why there is no drawing, in place of it."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=MUTED, transform=axes.transAxes, wrap=True)


def byte_axis(axes: Axes, largest: float, which: Literal["x", "y"] = "y") -> float:
    """Give an axis a binary unit.

    Returns:
        Bytes of the unit: values are divided by it.
    """
    unit = unit_for(largest)
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(unit.name)
    axes.grid(axis="x" if which == "x" else "y")
    axes.tick_params(axis=which, length=0)
    return float(unit.bytes)
