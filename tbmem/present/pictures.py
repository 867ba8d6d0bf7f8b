"""An analysis and a folder go in; six PNG files of each device come out."""

from __future__ import annotations

from pathlib import Path

from tbmem.analysis.layers import Layers, layers_of
from tbmem.analysis.report import Analysis, DeviceAnalysis
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


def picture_folder(device: DeviceAnalysis) -> str:
    """Name of the folder of a further device's pictures: ``'cuda_1'``."""
    return device.name.replace(":", "_")


def write_pictures(analysis: Analysis, folder: Path, layers: Layers | None = None) -> tuple[Path, ...]:
    """Draw the main device, and each other that is worth it in a folder of its own.

    Args:
        analysis: With its rows.
        folder: Where to.
        layers: Of the main device, if they are at hand.

    Raises:
        OSError: A file cannot be written.
    """
    main, *others = analysis.shown
    paths = _draw(analysis, main, folder, layers)
    for device in others:
        own = folder / picture_folder(device)
        own.mkdir()
        paths += _draw(analysis, device, own, None)
    return paths


def _draw(analysis: Analysis, device: DeviceAnalysis, folder: Path, layers: Layers | None) -> tuple[Path, ...]:
    paths = tuple(folder / name for name in PICTURES)
    timeline, overview, top, categories, sizes, efficiency = paths
    draw_timeline(analysis, device, layers or layers_of(analysis, device.number), timeline)
    draw_overview(analysis, device, overview)
    draw_top(analysis, device, top)
    draw_categories(analysis, device, categories)
    draw_sizes(analysis, device, sizes_of(analysis, device.number), sizes)
    draw_efficiency(analysis, device, efficiency)
    return paths
