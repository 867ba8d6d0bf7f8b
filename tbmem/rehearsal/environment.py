"""The environment in which Python processes, and those that they start, see a simulated GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from tbmem.model.gpus import NCCL, Gpu
from tbmem.rehearsal.library import MAIN, built_library

LIBRARY = "TBMEM_GPU_LIBRARY"
"""Path of the built library: set where the GPU is simulated."""
ORDER = "TBMEM_REHEARSAL"
"""Variable with the ``Order`` of a rehearsed program."""
_STARTUP = Path(__file__).with_name("startup")
_PACKAGES = Path(__file__).parents[2]


class Order(NamedTuple):
    """What the parent asks of each process."""

    steps: int
    """Steps after which the program is ended; 0: it ends by itself."""
    logdir: str
    results: str
    """Folder for a result file of each process."""
    world_size: int = 0
    """Ranks of the world of which this process is one, alone; 0: the program starts all of them itself."""
    rank: int = 0
    is_recorded: bool = True
    """Whether allocations are recorded, or peaks only."""

    def variable(self) -> dict[str, str]:
        """The environment variable that carries it."""
        return {ORDER: json.dumps(self._asdict())}

    @classmethod
    def of_this_process(cls) -> Order | None:
        """The order in the environment, if there is one."""
        text = os.environ.get(ORDER)
        return cls(**json.loads(text)) if text else None


def world_environment(rank: int, world_size: int) -> dict[str, str]:
    """Variables that a launcher would set for this rank; every node has 8 GPUs."""
    local = min(world_size, 8)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # its thread looks into the store for words of peers
    }


def rehearsal_environment(gpu: Gpu, devices: int = 1, folder: Path | None = None) -> dict[str, str]:
    """Variables for a Python process on simulated GPUs; its children inherit them, others are not touched.

    Args:
        gpu: What each GPU is.
        devices: Number of GPUs.
        folder: Where the processes of one program exchange what collectives carry; ``None``: each process is alone.

    Returns:
        A copy of the current environment with what the device needs.

    Raises:
        UsageError: What is needed to build the device is not here.
    """
    library = built_library()
    paths = [str(_STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        LIBRARY: str(library / MAIN),
        "TBMEM_GPU_PACKAGES": str(_PACKAGES),
        "TBMEM_GPU_NAME": gpu.device_name,
        "TBMEM_GPU_CAPABILITY": "".join(map(str, gpu.capability)),
        "TBMEM_GPU_MULTIPROCESSORS": str(gpu.multiprocessors),
        "TBMEM_GPU_BYTES": str(gpu.total),
        "TBMEM_GPU_CONTEXT_BYTES": str(gpu.context),
        "TBMEM_GPU_L2_BYTES": str(gpu.l2_cache),
        "TBMEM_GPU_NCCL_BYTES": str(NCCL),
        "TBMEM_GPU_COUNT": str(devices),
        "TRITON_LIBCUDA_PATH": str(library),  # Triton links its launchers with the driver's name
        "USE_PYTORCH_KERNEL_CACHE": "0",  # of what NVRTC compiles: a real GPU of the same name would load it
    }
    result.pop("CUDA_VISIBLE_DEVICES", None)
    if folder is not None:
        result["TBMEM_GPU_FOLDER"] = str(folder)
    return result


def is_simulated() -> bool:
    """Whether this process sees simulated GPUs."""
    return LIBRARY in os.environ
