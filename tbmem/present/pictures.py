"""An analysis and a folder go in; six PNG files come out."""

from __future__ import annotations

from pathlib import Path

from tbmem.analysis.layers import Layers, layers_of
from tbmem.analysis.report import Analysis
from tbmem.analysis.sizes import sizes_of
from tbmem.present.share_pictures import draw_categories, draw_overview, draw_top
from tbmem.present.size_pictures import draw_efficiency, draw_sizes
from tbmem.present.timeline_picture import draw_timeline

PICTURES = (
    "memory_timeline.png",
    "memory_overview.png",
    "top_consumers.png",
    "category_breakdown.png",
    "size_distribution.png",
    "memory_efficiency.png",
)


def write_pictures(analysis: Analysis, folder: Path, layers: Layers | None = None) -> tuple[Path, ...]:
    """Draw the device with the highest peak.

    Args:
        analysis: With its rows.
        folder: Where to.
        layers: Of this device, if they are at hand.

    Raises:
        OSError: A file cannot be written.
    """
    device = analysis.main
    paths = tuple(folder / name for name in PICTURES)
    timeline, overview, top, categories, sizes, efficiency = paths
    draw_timeline(analysis, device, layers or layers_of(analysis, device.number), timeline)
    draw_overview(analysis, device, overview)
    draw_top(analysis, device, top)
    draw_categories(analysis, device, categories)
    draw_sizes(analysis, device, sizes_of(analysis, device.number), sizes)
    draw_efficiency(analysis, device, efficiency)
    return paths
