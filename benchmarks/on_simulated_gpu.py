"""Runs a command, and what it starts, on simulated GPUs.

    python benchmarks/on_simulated_gpu.py [--gpu h100-80gb] [--gpus 1] COMMAND ...

The command must be one of a Python with the CUDA build of torch. ``make test-gpu`` makes such an environment:

    GPU=.venv-torch-2.14.1/bin/python
    $GPU benchmarks/on_simulated_gpu.py $GPU benchmarks/gpu_check.py
    $GPU benchmarks/on_simulated_gpu.py $GPU benchmarks/verdicts.py --loops benchmarks/loops/dev --device cuda
    $GPU benchmarks/on_simulated_gpu.py $GPU benchmarks/monitor_overhead.py

Allocator, memory history and out-of-memory errors are torch's own, to the byte; kernels take no time and compute
nothing, so that a loop is as fast as its Python and values read from the device are zero.
"""

from __future__ import annotations

import argparse
import os
import sys

from tbmem.errors import TbmemError
from tbmem.model.gpus import gpu_named
from tbmem.rehearsal.environment import rehearsal_environment


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gpu", default="h100-80gb", help="name of a GPU, as for tbmem estimate")
    arguments.add_argument("--gpus", type=int, default=1, help="how many of them")
    arguments.add_argument("command", nargs=argparse.REMAINDER, help="the command and its arguments")
    given = arguments.parse_args()
    if not given.command:
        arguments.error("there is no command to run")
    try:
        environment = rehearsal_environment(gpu_named(given.gpu), given.gpus)
        os.execvpe(given.command[0], given.command, environment)
    except (OSError, TbmemError) as error:
        print(f"on_simulated_gpu.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
