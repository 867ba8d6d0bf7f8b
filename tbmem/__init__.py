"""Memory that explains itself: drop one callback into a PyTorch training loop and learn whether memory leaks.

Public names are loaded when they are first used: importing tbmem loads neither torch nor a framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbmem.analysis.category_rules import CategoryTable
    from tbmem.analysis.comparison import Comparison
    from tbmem.analysis.report import Analysis
    from tbmem.config import Config, load_config
    from tbmem.errors import (
        ConfigError,
        FileFormatError,
        MissingDependencyError,
        RunFolderError,
        TbmemError,
        UsageError,
    )
    from tbmem.model.address_book import AddressBook
    from tbmem.model.finding import Finding
    from tbmem.model.sample import MemorySample
    from tbmem.model.summary import RunSummary
    from tbmem.model.timeline import AllocationTimeline
    from tbmem.offline.reports import write_report
    from tbmem.offline.rules_file import load_rules
    from tbmem.offline.run_reports import write_run_report
    from tbmem.offline.study import analyze, analyze_all, compare
    from tbmem.runtime.callback import MemoryCallback
    from tbmem.runtime.estimate import estimate
    from tbmem.runtime.monitor import MemoryMonitor
    from tbmem.runtime.profiler import MemoryProfiler
    from tbmem.runtime.record import record

__version__ = "0.1.0"

_HOMES = {
    "AddressBook": "tbmem.model.address_book",
    "AllocationTimeline": "tbmem.model.timeline",
    "Analysis": "tbmem.analysis.report",
    "CategoryTable": "tbmem.analysis.category_rules",
    "Comparison": "tbmem.analysis.comparison",
    "Config": "tbmem.config",
    "ConfigError": "tbmem.errors",
    "FileFormatError": "tbmem.errors",
    "Finding": "tbmem.model.finding",
    "MemoryCallback": "tbmem.runtime.callback",
    "MemoryMonitor": "tbmem.runtime.monitor",
    "MemoryProfiler": "tbmem.runtime.profiler",
    "MemorySample": "tbmem.model.sample",
    "MissingDependencyError": "tbmem.errors",
    "RunFolderError": "tbmem.errors",
    "RunSummary": "tbmem.model.summary",
    "TbmemError": "tbmem.errors",
    "UsageError": "tbmem.errors",
    "analyze": "tbmem.offline.study",
    "analyze_all": "tbmem.offline.study",
    "compare": "tbmem.offline.study",
    "estimate": "tbmem.runtime.estimate",
    "load_config": "tbmem.config",
    "load_rules": "tbmem.offline.rules_file",
    "record": "tbmem.runtime.record",
    "write_report": "tbmem.offline.reports",
    "write_run_report": "tbmem.offline.run_reports",
}

__all__ = [
    "AddressBook",
    "AllocationTimeline",
    "Analysis",
    "CategoryTable",
    "Comparison",
    "Config",
    "ConfigError",
    "FileFormatError",
    "Finding",
    "MemoryCallback",
    "MemoryMonitor",
    "MemoryProfiler",
    "MemorySample",
    "MissingDependencyError",
    "RunFolderError",
    "RunSummary",
    "TbmemError",
    "UsageError",
    "analyze",
    "analyze_all",
    "compare",
    "estimate",
    "load_config",
    "load_rules",
    "record",
    "write_report",
    "write_run_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tbmem' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
