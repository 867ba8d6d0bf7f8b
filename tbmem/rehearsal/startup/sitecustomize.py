"""Loads the simulated device into each Python process of a rehearsal, before torch looks for a GPU.

Python imports this module at its start because the folder stands in PYTHONPATH; a module of the same name that it
hides is run as well. When torch has been imported, tbmem.rehearsal.process does the rest.
"""

import ctypes
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _AfterTorch:
    """A finder that calls a function when the module torch has been executed."""

    def find_spec(self, name: str, *_: Any) -> "ModuleSpec | None":
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec("torch")
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _torch_is_there()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _load_device() -> None:
    path = os.environ.get("TBMEM_GPU_LIBRARY")
    if not path or not os.path.exists(path):
        return
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # its functions come before those of CUDA's own libraries
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        ctypes.CDLL(os.path.join(os.path.dirname(path), name))
    sys.meta_path.insert(0, _AfterTorch())


def _torch_is_there() -> None:
    try:
        from tbmem.rehearsal.process import prepare

        prepare()
    except Exception as error:  # a program without tbmem's packages still has its GPU
        sys.stderr.write(f"tbmem: this process of the rehearsal is not watched: {error}\n")


def _run_hidden_module() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    hidden = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != own])
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(module_from_spec(hidden))


_load_device()
_run_hidden_module()
