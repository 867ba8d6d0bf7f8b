"""What malloc counts, whichever one the process uses."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARIES = {"jemalloc": "jemalloc", "tcmalloc": "tcmalloc_minimal", "mimalloc": "mimalloc"}
COUNT = """
import ctypes
from tbmem.sources.counters.malloc_counters import find_counters

counters = find_counters()
if counters is None:
    print("none")
else:
    libc = ctypes.PyDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    before, _ = counters()
    blocks = [libc.malloc(32 << 10) for _ in range(1000)]
    after, held = counters()
    for block in blocks:
        libc.free(block)
    freed, _ = counters()
    print(after - before, freed - before, held >= after)
"""
LEAK = """
import sys
import torch
import tbmem

kept = []
off = {"enabled": False}
with tbmem.MemoryCallback(run={"logdir": sys.argv[1]}, profiling=off, evidence=off) as memory:
    for _ in range(600):
        torch.zeros(64, 64) @ torch.zeros(64, 64)
        kept.append(torch.zeros(8192))
        memory.step()
print(memory.verdicts[0].kind.value, memory.verdicts[0].evidence["bytes_per_step"])
"""


def _run(library: str, program: str, *arguments: str) -> list[str]:
    found = ctypes.util.find_library(LIBRARIES[library])
    if found is None:
        pytest.skip(f"{library} is not installed")
    environment = {**os.environ, "LD_PRELOAD": found, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("library", ["jemalloc", "tcmalloc"])
def test_a_preloaded_malloc_counts_itself(library: str) -> None:
    # when 1000 blocks of 32 KiB are allocated, and freed
    grown, rest, holds = _run(library, COUNT)
    # then, rounding and the interpreter's own objects aside
    assert int(grown) == pytest.approx(1000 * (32 << 10), rel=0.3)
    assert int(rest) == pytest.approx(0, abs=2 << 20)
    assert holds == "True"


def test_a_malloc_that_counts_nothing_has_no_counters() -> None:
    assert _run("mimalloc", COUNT) == ["none"]


@pytest.mark.parametrize("library", ["jemalloc", "tcmalloc"])
def test_a_leak_of_32_kib_a_step_is_found_under_it(library: str, tmp_path: Path) -> None:
    kind, rate = _run(library, LEAK, str(tmp_path))
    assert kind == "leak"
    assert float(rate) == pytest.approx(32 << 10, rel=0.35)
