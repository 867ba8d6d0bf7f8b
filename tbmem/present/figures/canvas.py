"""Figures with a heading, written as PNG; matplotlib is imported when one is drawn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tbmem.present.labels import unit_for
from tbmem.present.palette import INK, LIGHT, MUTED
from tbmem.requirements import missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def no_pictures() -> str:
    """Why none can be drawn here, in one line; empty if matplotlib is installed."""
    return missing("matplotlib", extra="plots", minimum="3.8", feature="drawing them")


@contextmanager
def picture(path: Path, title: str, subtitle: str, width: float = 12, height: float = 6.5) -> Iterator[Figure]:
    """A figure of ``width`` and ``height`` inches with a heading, saved as PNG at the end of the block."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # the layout engine ignores texts of the figure: keep two lines free above the axes
    room = 0.72 / height
    arrangement = ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.98, 0.98 - room), w_pad=0.08, h_pad=0.08)
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # a name may have characters that the font lacks; they are drawn as boxes
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(width, height), dpi=120, layout=arrangement)
        FigureCanvasAgg(figure)
        figure.text(0.16 / width, 1 - 0.14 / height, title, fontsize=14, fontweight="bold", va="top")
        figure.text(0.16 / width, 1 - 0.44 / height, subtitle, fontsize=9.5, color=MUTED, va="top")
        yield figure
        figure.savefig(path, format="png")


def draw_message(axes: Axes, text: str) -> None:
    """Show a text instead of a chart."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=MUTED, transform=axes.transAxes, wrap=True)


def byte_axis(axes: Axes, largest: float, axis: Literal["x", "y"] = "y") -> float:
    """Label an axis with the binary unit that suits its largest value.

    Returns:
        Bytes per unit, by which values are to be divided.
    """
    unit = unit_for(largest)
    (axes.set_xlabel if axis == "x" else axes.set_ylabel)(unit.name)
    axes.grid(axis=axis)
    axes.tick_params(axis=axis, length=0)
    return float(unit.bytes)
