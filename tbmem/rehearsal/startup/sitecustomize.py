"""Loads the simulated device into each Python process of a rehearsal, before torch looks for a GPU.

Python imports this module at its start because the folder stands in PYTHONPATH; a module of the same name that it
hides is run as well.
"""

import ctypes
import os
import sys


def _load_device() -> None:
    path = os.environ.get("TBMEM_GPU_LIBRARY")
    if not path or not os.path.exists(path):
        return
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # its functions come before those of CUDA's own libraries
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        ctypes.CDLL(os.path.join(os.path.dirname(path), name))
    ready = ctypes.CFUNCTYPE(ctypes.c_int)(_watch_reads)
    library.tbmem_device_on_first_use(ready)
    _kept.append(ready)


def _watch_reads() -> int:
    """Called when the device is used; 1 when there is nothing more to do."""
    torch = sys.modules.get("torch")
    if torch is None or getattr(torch.__spec__, "_initializing", False):
        return 0
    try:
        from tbmem.rehearsal.device_reads import watch

        watch(os.environ["TBMEM_GPU_LIBRARY"])
    except Exception as error:  # a program without tbmem's packages still has its GPU
        sys.stderr.write(f"tbmem: values read from the simulated GPU are not watched: {error}\n")
    return 1


def _run_hidden_module() -> None:
    from importlib.machinery import PathFinder

    own = os.path.dirname(os.path.abspath(__file__))
    hidden = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != own])
    if hidden is not None and hidden.loader is not None and hidden.origin != __file__:
        from importlib.util import module_from_spec

        hidden.loader.exec_module(module_from_spec(hidden))


_kept: list[object] = []
_load_device()
_run_hidden_module()
