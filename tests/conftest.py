"""What all tests share: proof that nothing is left switched on, a place to write, the corpus, hand-built records."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tbmem.model.sample import MemorySample
from tbmem.present.lines import LOGGER_NAME
from tbmem.sources.counters import malloc

if TYPE_CHECKING:
    from tests.sources.fakes import FakeCuda

PROJECT = Path(__file__).parent.parent
GIB = 1 << 30
MIB = 1 << 20
CORPUS = Path(os.environ.get("TBMEM_CORPUS", PROJECT.parent / "shared" / "corpus"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts jobs in the background so, and every program that a test starts and interrupts would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


_ENDING_SECONDS = 10.0

_ORDER = ["sources", "runtime", "browser", "cli", "benchmarks", "integrations", "estimator"]
"""Folders whose tests come first: those that search the process' heap before it is large, then those that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files, each as a whole; with ``--no-loadscope-reorder`` workers take them in this order."""
    places = {name: place for place, name in enumerate(_ORDER)}

    def place_of(item: pytest.Item) -> int:
        inside = (
            item.path.relative_to(PROJECT / "tests").parts if item.path.is_relative_to(PROJECT / "tests") else ("",)
        )
        return places.get(inside[0], len(places))

    items.sort(key=place_of)


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition that another thread fulfils comes true."""
    ends = time.monotonic() + seconds
    while not holds() and time.monotonic() < ends:
        time.sleep(0.005)
    return holds()


@pytest.fixture(autouse=True, scope="module")
def what_is_older_is_frozen() -> None:
    """Leave the objects of libraries and earlier files out of collections and searches: in the end they are a million.

    A search for holders that takes 0.1 s in a program takes 10 s among them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_is_left_switched_on() -> Iterator[None]:
    """After each test: no profiler, no hook, no thread, no handler, no changed level."""
    before = _switches()
    yield
    ends = time.monotonic() + _ENDING_SECONDS
    while _threads() != before["threads"] and time.monotonic() < ends:
        time.sleep(0.02)  # ``stop`` does not wait for a slow disk: what still writes then ends by itself
    assert _switches() == before


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("tbmem"))


def _switches() -> dict[str, object]:
    import torch
    from torch.optim.optimizer import _global_optimizer_post_hooks

    from tbmem.runtime.oom.cuda_observer import _Observer
    from tbmem.sources.torch_state.memory_history import MemoryHistory
    from tbmem.sources.torch_state.profiler_state import _c10_level

    logger = logging.getLogger(LOGGER_NAME)
    level = _c10_level()
    return {
        "ranges": (torch.profiler.record_function.__enter__, torch.profiler.record_function.__exit__),
        "profiler": torch._C._autograd._profiler_enabled(),
        "saved tensor hooks": getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)(True),
        "functorch's switch": torch._C._autograd._saved_tensors_hooks_disable,
        "functions' saved tensors": torch.autograd.function.BackwardCFunction.saved_tensors,
        "torch's profiler": [getattr(torch.autograd.profiler, f"_{name}_profiler") for name in ("prepare", "enable")],
        "optimizer hooks": len(_global_optimizer_post_hooks),
        "torch functions": torch._C._is_torch_function_enabled(),
        "memory history": MemoryHistory._owner,
        "observers of out-of-memory": _Observer.listeners,
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "threads": _threads(),
        "log handlers": list(logger.handlers),
        "log level": (logger.level, logger.propagate),
        "c10 log level": level.value if level is not None else None,
        "kineto log level": os.environ.get("KINETO_LOG_LEVEL"),
    }


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A GPU in use whose allocator keeps history."""
    import torch
    import torch._dynamo  # before torch.cuda is replaced: an optimizer loads it, and it looks around there

    from tbmem.sources.torch_state.memory_history import MemoryHistory
    from tests.sources.fakes import FakeCuda

    fake = FakeCuda()
    fake.malloc(512)
    monkeypatch.setattr(torch, "cuda", fake)
    yield fake
    MemoryHistory._owner = None


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The corpus of real material; a test that needs it is skipped, visibly, where it is missing."""
    if not (CORPUS / "oracle.json").is_file():
        pytest.skip(f"no corpus at {CORPUS}: set TBMEM_CORPUS")
    return CORPUS


def read_malloc_at_each_step(patch: pytest.MonkeyPatch) -> None:
    """For runs of few steps: the heap that thousands of tests have used is slow to read, and would be read in few."""
    for ration in ("_SHARE_OF_A_STEP", "_CREDIT"):
        patch.setattr(malloc, ration, 60.0)


MakeSample = Callable[..., MemorySample]


@pytest.fixture
def make_sample() -> MakeSample:
    """A hand-built sample: ``make_sample(step, allocated_gib, peak_gib)`` on an 80 GiB device."""

    def make(step: int, allocated: float, peak: float | None = None, **others: object) -> MemorySample:
        values: dict[str, object] = {
            "step": step,
            "time": 1000.0 + step / 100,
            "device": "cuda:0",
            "allocated": round(allocated * GIB),
            "reserved": round(allocated * GIB),
            "peak_allocated": round((allocated if peak is None else peak) * GIB),
            "device_total": 80 * GIB,
        }
        return MemorySample(**{**values, **others})  # type: ignore[arg-type]

    return make
