"""The formats of other tools that a recording can be written in."""

from __future__ import annotations

from enum import Enum


class ExportFormat(str, Enum):
    """What a recording can be turned into."""

    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    CSV = "csv"
    JSON = "json"
    MEMORY_VIZ = "memory_viz"
