"""Seeds for programs that have none, so that two runs of one can be compared; what they held, written at their end."""

import atexit
import ctypes
import gc
import json
import os
import random
from pathlib import Path

import numpy as np
import torch

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


def _write_resident(file: Path) -> None:
    """Write how many bytes are resident once what is free has been given back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    file.write_text(str(pages * os.sysconf("SC_PAGESIZE")))


if "RESIDENT_AT_END" in os.environ:
    atexit.register(_write_resident, Path(os.environ.pop("RESIDENT_AT_END")))


def _write_gpu_counters(file: Path) -> None:
    """Write torch's own counters of the first GPU, if the program used it."""
    if torch.cuda.is_initialized():
        file.write_text(json.dumps(torch.cuda.memory_stats(0)))


if "GPU_COUNTERS_AT_END" in os.environ:
    atexit.register(_write_gpu_counters, Path(os.environ["GPU_COUNTERS_AT_END"]))
