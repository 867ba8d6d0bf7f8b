"""Loads the simulated device into each Python process of a rehearsal, before torch looks for a GPU.

Python imports this module at its start because the folder stands in PYTHONPATH; a module of the same name that it
hides is run as well. When torch has been imported, tbmem.rehearsal.process does the rest.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any


class _AfterImport:
    """A finder that calls a function with a module when it has been executed."""

    def __init__(self, name: str, function: "Callable[[ModuleType], None]") -> None:
        self._name, self._function = name, function

    def find_spec(self, name: str, *where: Any) -> "ModuleSpec | None":
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, *where) for finder in sys.meta_path)
        spec = next((each for each in specs if each is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _load_device() -> None:
    path = os.environ.get("TBMEM_GPU_LIBRARY")
    if not path or not os.path.exists(path):
        return
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # its functions come before those of CUDA's own libraries
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if ".so." in name:  # the names under which programs open the driver and NVRTC
            ctypes.CDLL(os.path.join(folder, name))
    functions = {
        "torch": _torch_is_there,
        "transformers.generation.utils": _generation_is_there,
        "transformers.masking_utils": _masks_are_there,
    }
    for name, function in functions.items():
        sys.meta_path.insert(0, _AfterImport(name, function))


def _torch_is_there(_: ModuleType) -> None:
    sys.path.append(os.environ.get("TBMEM_GPU_PACKAGES", ""))  # last: it may be a folder with all packages
    try:
        from tbmem.rehearsal.process import prepare

        prepare()
    except Exception as error:  # a program without tbmem's packages still has its GPU
        sys.stderr.write(f"tbmem: this process of the rehearsal is not watched: {error}\n")


def _generation_is_there(module: ModuleType) -> None:
    try:
        from tbmem.rehearsal.transformers_answers import end_at_the_last_token

        end_at_the_last_token(module)
    except Exception as error:
        sys.stderr.write(f"tbmem: generate() may not end in this rehearsal: {error}\n")


def _masks_are_there(module: ModuleType) -> None:
    try:
        from tbmem.rehearsal.transformers_answers import no_packed_sequences

        no_packed_sequences(module)
    except Exception as error:
        sys.stderr.write(f"tbmem: attention masks may be larger in this rehearsal: {error}\n")


def _run_hidden_module() -> None:
    own = os.path.dirname(os.path.abspath(__file__))
    hidden = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != own])
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(module_from_spec(hidden))


_load_device()
_run_hidden_module()
