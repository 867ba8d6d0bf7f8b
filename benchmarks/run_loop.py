"""One loop file in this process: its path goes in, what tbmem said about it comes out as JSON.

    python benchmarks/run_loop.py LOOP.py --steps 300 --result FILE [--logdir DIR] [--device cuda]

With --logdir the loop runs under MemoryCallback in the default configuration, without it alone: the time of the one
less that of the other is what tbmem costs. benchmarks/verdicts.py calls this once for each loop.

With --device the loop's tensors lie there, although it names no device: torch's default device is set, in every thread,
and ``numpy()`` is read as ``cpu().numpy()``, which such a line must say there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def load(path: Path, device: str | None = None) -> ModuleType:
    """The loop file as a module, under a name that hides no other module."""
    name = f"loop_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent))
    source = path.read_text(encoding="utf-8")
    if device is not None:
        place_on(device)
        source = source.replace(".numpy()", ".cpu().numpy()")  # no line moves
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def place_on(device: str) -> None:
    """Make tensors on a device by default: in every thread, from arrays, by generators; loaders shuffle on the CPU."""
    import torch

    thread: Any = threading.Thread
    sampler: Any = torch.utils.data.RandomSampler
    iterator: Any = torch.utils.data.dataloader._BaseDataLoaderIter
    bootstrap, shuffle, begin_loading = thread._bootstrap_inner, sampler.__iter__, iterator.__init__
    from_numpy: Any = torch.from_numpy
    generator: Any = torch.Generator

    class OnDevice(generator):  # type: ignore[misc]
        def __new__(cls, place: Any = None) -> Any:
            return generator.__new__(cls, place or torch.get_default_device())

    def begin(self: threading.Thread) -> None:
        torch.set_default_device(device)  # of one thread each
        try:
            bootstrap(self)
        finally:
            # what torch keeps for a thread is freed after Python's last line there, without asking whether Python still
            # runs (github.com/pytorch/pytorch/issues/190489): an object left in it may abort the process at its exit
            torch.set_default_device(None)

    def on_cpu(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*values: Any, **options: Any) -> Any:
            with torch.device("cpu"):
                return call(*values, **options)

        return called

    torch.set_default_device(device)
    thread._bootstrap_inner = begin
    sampler.__iter__ = on_cpu(lambda self: iter(list(shuffle(self))))
    iterator.__init__ = on_cpu(begin_loading)
    torch.Generator = OnDevice  # type: ignore[misc, assignment]
    torch.from_numpy = lambda ndarray: from_numpy(ndarray).to(device)


def run_plain(step: Callable[[int], Any], times: array[float]) -> None:
    """The loop alone."""
    for number in range(len(times)):
        began = time.perf_counter()
        step(number)
        times[number] = time.perf_counter() - began


def run_watched(step: Callable[[int], Any], times: array[float], logdir: str) -> Any:
    """The loop as a user watches it; the callback's summary comes back."""
    from tbmem import MemoryCallback

    with MemoryCallback(run={"logdir": logdir}) as memory:
        for number in range(len(times)):
            began = time.perf_counter()
            step(number)
            memory.step()
            times[number] = time.perf_counter() - began
    if memory.summary is None:
        raise RuntimeError("the callback has no summary")
    return memory.summary


def told(summary: Any) -> dict[str, Any]:
    """What of a summary the scores need, as plain JSON values."""
    return {
        "verdicts": [finding.to_dict() for finding in summary.verdicts],
        "findings": [finding.to_dict() for finding in summary.findings],
        "problems": list(summary.problems),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("loop", type=Path)
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--result", type=Path, required=True)
    arguments.add_argument("--logdir")
    arguments.add_argument("--device", help="where the loop's tensors lie, if not on the CPU")
    given = arguments.parse_args()

    step = load(given.loop.resolve(), given.device).make()
    times = array("d", bytes(8 * given.steps))  # of its final size, so that this list is no leak
    result: dict[str, Any] = {}
    began = time.perf_counter()
    try:
        if given.logdir is None:
            run_plain(step, times)
        else:
            result = told(run_watched(step, times, given.logdir))
    finally:
        total = time.perf_counter() - began
        getattr(step, "close", lambda: None)()
    seconds = {"total": total, "mean_step": sum(times) / given.steps, "median_step": statistics.median(times)}
    given.result.write_text(json.dumps({**result, "seconds": seconds}))


if __name__ == "__main__":
    main()
