"""Monitors and explains the memory of PyTorch training runs.

Public names are imported on first use: ``import tbmem`` loads neither torch nor a framework.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tbmem.untraced import untraced

if TYPE_CHECKING:
    from tbmem.analysis.recordings.category_rules import CategoryTable as CategoryTable
    from tbmem.analysis.recordings.result import Analysis as Analysis
    from tbmem.analysis.runs.comparison import Comparison as Comparison
    from tbmem.api.estimate import estimate as estimate
    from tbmem.api.rehearse import rehearse as rehearse
    from tbmem.api.report import Report as Report
    from tbmem.api.report import report as report
    from tbmem.api.results import Estimate as Estimate
    from tbmem.api.results import Largest as Largest
    from tbmem.api.results import Rehearsal as Rehearsal
    from tbmem.config import Config as Config
    from tbmem.config import load_config as load_config
    from tbmem.errors import ConfigError as ConfigError
    from tbmem.errors import FileFormatError as FileFormatError
    from tbmem.errors import MissingDependencyError as MissingDependencyError
    from tbmem.errors import RunFolderError as RunFolderError
    from tbmem.errors import TbmemError as TbmemError
    from tbmem.errors import UsageError as UsageError
    from tbmem.model.address_book import AddressBook as AddressBook
    from tbmem.model.finding import Finding as Finding
    from tbmem.model.run_summary import RunSummary as RunSummary
    from tbmem.model.sample import MemorySample as MemorySample
    from tbmem.model.timeline import AllocationTimeline as AllocationTimeline
    from tbmem.notebook.extension import load_ipython_extension as load_ipython_extension
    from tbmem.notebook.extension import unload_ipython_extension as unload_ipython_extension
    from tbmem.notebook.show import show as show
    from tbmem.offline.analyze import analyze as analyze
    from tbmem.offline.analyze import analyze_all as analyze_all
    from tbmem.offline.analyze import compare as compare
    from tbmem.offline.analyze import load_rules as load_rules
    from tbmem.offline.reports.folders import write_report as write_report
    from tbmem.offline.reports.folders import write_run_report as write_run_report
    from tbmem.runtime.callback import MemoryCallback as MemoryCallback
    from tbmem.runtime.monitor import MemoryMonitor as MemoryMonitor
    from tbmem.runtime.profiler import MemoryProfiler as MemoryProfiler
    from tbmem.runtime.record import record as record

__version__ = "0.2.0"

_EXPORTS = {
    "analysis.recordings.category_rules": ("CategoryTable",),
    "analysis.recordings.result": ("Analysis",),
    "analysis.runs.comparison": ("Comparison",),
    "config": ("Config", "load_config"),
    "errors": (
        *("ConfigError", "FileFormatError", "MissingDependencyError", "RunFolderError", "TbmemError", "UsageError"),
    ),
    "api.estimate": ("estimate",),
    "api.rehearse": ("rehearse",),
    "api.report": ("Report", "report"),
    "api.results": (
        "Estimate",
        "Largest",
        "Rehearsal",
    ),
    "model.address_book": ("AddressBook",),
    "model.finding": ("Finding",),
    "model.run_summary": ("RunSummary",),
    "model.sample": ("MemorySample",),
    "model.timeline": ("AllocationTimeline",),
    "notebook.extension": ("load_ipython_extension", "unload_ipython_extension"),
    "notebook.show": ("show",),
    "offline.analyze": ("analyze", "analyze_all", "compare", "load_rules"),
    "offline.reports.folders": ("write_report", "write_run_report"),
    "runtime.callback": ("MemoryCallback",),
    "runtime.monitor": ("MemoryMonitor",),
    "runtime.profiler": ("MemoryProfiler",),
    "runtime.record": ("record",),
}
_HOMES = {name: f"tbmem.{module}" for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        missing = f"module 'tbmem' has no attribute {name!r}"
        raise AttributeError(missing, name=name, obj=sys.modules[__name__])  # Python names a similar one
    if "torch" not in sys.modules:
        return getattr(import_module(_HOMES[name]), name)
    own_memory = untraced(lambda: import_module("tbmem.sources.counters.own_memory")).own_memory
    with own_memory.working():  # of the program torch is, and it is loaded
        return getattr(untraced(lambda: import_module(_HOMES[name])), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
