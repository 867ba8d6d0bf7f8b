"""A format's name goes in, as a command line has it; an ExportFormat comes out. Nothing heavy is loaded."""

from __future__ import annotations

from enum import Enum


class ExportFormat(str, Enum):
    """What a recording can be turned into."""

    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    CSV = "csv"
    JSON = "json"
    MEMORY_VIZ = "memory_viz"
