"""Profilers, tracers and debuggers of a program's own, each with a check of its results; for ``profilers.py``.

Each is started, sees some calls of ``work``, and is stopped. ``missing`` compares what it has recorded with how often
``work`` was called meanwhile, and returns what is not there as one sentence; empty where everything is.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import torch

BLOCK = 3 << 20
"""Bytes that each call of ``work`` allocates in Python, larger than anything else in the process."""
MATMULS = 2
"""Calls of ``aten::addmm`` in a call of ``work``."""


class Tool:
    """A tool that is started and stopped once; ``tick`` is called after each call of ``work``."""

    name: ClassVar[str]
    module: ClassVar[str] = "sys"
    """What has to be installed."""

    def __init__(self, work: Callable[[], object], folder: Path) -> None:
        self.work = work
        self.code: CodeType = work.__code__  # type: ignore[attr-defined]
        self.folder = folder

    @classmethod
    def why_not(cls) -> str:
        """Why it cannot be tried here."""
        return "" if importlib.util.find_spec(cls.module.partition(".")[0]) else "not installed"

    def start(self) -> None:
        """Begin to record."""
        raise NotImplementedError

    def tick(self) -> None:
        """A call of ``work`` has ended."""

    def stop(self) -> None:
        """Record no longer."""
        raise NotImplementedError

    def missing(self, calls: int) -> str:
        """What its results lack of this number of calls."""
        raise NotImplementedError


def compare(what: str, seen: int, expected: int) -> str:
    return "" if seen == expected else f"{seen} of {expected} {what}"


class TorchProfiler(Tool):
    """torch.profiler without a schedule."""

    name = "torch.profiler"
    settings: ClassVar[dict[str, Any]] = {"profile_memory": True}
    is_long = False
    """Whether torch takes minutes for its averages; the trace is then all that is read."""

    def start(self) -> None:
        self.profile: Any = self.make()
        self.profile.__enter__()

    def make(self) -> Any:
        return torch.profiler.profile(**self.settings)

    def stop(self) -> None:
        self.profile.__exit__(None, None, None)

    def missing(self, calls: int) -> str:
        seen = MATMULS * calls if self.is_long else self._averaged()
        path = self.folder / "own.json"
        self.profile.export_chrome_trace(str(path))
        with open(path, encoding="utf-8") as file:
            written = sum(event.get("name") == "aten::addmm" for event in json.load(file)["traceEvents"])
        return compare("operators", seen, MATMULS * calls) or compare("operators written", written, MATMULS * calls)

    def _averaged(self) -> int:
        return sum(event.count for event in self.profile.key_averages() if event.key == "aten::addmm")


class TorchProfilerStacks(TorchProfiler):
    """torch.profiler with Python's stacks."""

    name = "torch.profiler, with_stack"
    settings: ClassVar[dict[str, Any]] = {"profile_memory": True, "with_stack": True, "record_shapes": True}
    is_long = True


class TorchProfilerSchedule(Tool):
    """torch.profiler with a schedule, whose step is a call of ``work``."""

    name = "torch.profiler, schedule"

    def start(self) -> None:
        self.seen: list[int] = []
        every_second = torch.profiler.schedule(wait=0, warmup=1, active=1)
        self.profile = torch.profiler.profile(schedule=every_second, on_trace_ready=self._ready)
        self.profile.__enter__()

    def _ready(self, recorded: torch.profiler.profile) -> None:
        self.seen.append(sum(event.count for event in recorded.key_averages() if event.key == "aten::addmm"))

    def tick(self) -> None:
        self.profile.step()

    def stop(self) -> None:
        self.profile.__exit__(None, None, None)

    def missing(self, calls: int) -> str:
        return compare("traces", sum(seen == MATMULS for seen in self.seen), calls // 2)


class AutogradProfiler(TorchProfiler):
    """The older profiler of torch.autograd."""

    name = "torch.autograd.profiler"

    def make(self) -> Any:
        return torch.autograd.profiler.profile()


class AutogradWithoutKineto(AutogradProfiler):
    """The same without kineto."""

    name = "torch.autograd.profiler, use_kineto=False"

    def make(self) -> Any:
        return torch.autograd.profiler.profile(use_kineto=False)


class EmitItt(Tool):
    """Ranges for VTune, which records them itself: here only whether torch emits them all the time."""

    name = "emit_itt"

    def make(self) -> Any:
        return torch.autograd.profiler.emit_itt()

    def start(self) -> None:
        self.emitter = self.make()
        self.emitter.__enter__()
        self.silent = 0

    def tick(self) -> None:
        self.silent += not torch._C._autograd._profiler_enabled()

    def stop(self) -> None:
        self.emitter.__exit__(None, None, None)

    def missing(self, calls: int) -> str:
        return compare("calls", calls - self.silent, calls)


class EmitNvtx(EmitItt):
    """Ranges for Nsight Systems."""

    name = "emit_nvtx"

    @classmethod
    def why_not(cls) -> str:
        return "" if torch.cuda.is_available() else "needs a GPU"

    def make(self) -> Any:
        return torch.autograd.profiler.emit_nvtx()


class RecordFunction(Tool):
    """A range that is open all the time, and one for each call."""

    name = "record_function"

    def start(self) -> None:
        self.ranges = [torch.profiler.record_function("whole")]
        self.ranges[0].__enter__()

    def tick(self) -> None:
        with torch.profiler.record_function("call") as opened:
            self.ranges.append(opened)

    def stop(self) -> None:
        self.ranges[0].__exit__(None, None, None)

    def missing(self, calls: int) -> str:
        return compare("ranges", len(self.ranges) - 1, calls)


class ExecutionTrace(Tool):
    """torch's observer that writes the graph of operators."""

    name = "ExecutionTraceObserver"

    def start(self) -> None:
        self.path = self.folder / "execution.json"
        self.observer: Any = torch.profiler.ExecutionTraceObserver()
        self.observer.register_callback(str(self.path))
        self.observer.start()

    def stop(self) -> None:
        self.observer.stop()
        self.observer.unregister_callback()

    def missing(self, calls: int) -> str:
        nodes = json.loads(self.path.read_text(encoding="utf-8"))["nodes"]
        return compare("operators", sum(node["name"] == "aten::addmm" for node in nodes), MATMULS * calls)


class MemoryHistory(Tool):
    """History of CUDA's allocator."""

    name = "_record_memory_history"

    @classmethod
    def why_not(cls) -> str:
        return "" if torch.cuda.is_available() else "needs a GPU"

    def start(self) -> None:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000)

    def stop(self) -> None:
        self.snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)

    def missing(self, calls: int) -> str:
        events = [event for trace in self.snapshot["device_traces"] for event in trace]
        ours = [event for event in events if event["action"] == "alloc" and event["size"] == BLOCK]
        return compare("allocations", len(ours), calls)


TORCH_TOOLS = (
    TorchProfiler,
    TorchProfilerStacks,
    TorchProfilerSchedule,
    AutogradProfiler,
    AutogradWithoutKineto,
    EmitItt,
    EmitNvtx,
    RecordFunction,
    ExecutionTrace,
    MemoryHistory,
)
