"""Who wrote the code of a file: the user, an installed package, torch, tbmem or Python itself.

The one rule by which every reader tells the user's own lines from the others: of running frames, of traces and of
snapshots, which may have been recorded on another machine.
"""

from __future__ import annotations

import functools
import re
import sys
from enum import IntEnum
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent.as_posix() + "/"
_NOTEBOOK = re.compile(r"<ipython-input|<stdin>|<doctest|<console>|(.*/)?ipykernel_\d+/")
"""Cells and prompts: in no file, or in one that is not kept."""
_DEMO = re.compile(r"(.*/)?tbmem/demo/")
"""The demonstration's training is a user's like any other."""
_TBMEM = re.compile(r"(.*/)?tbmem/(runtime|estimator|sources|analysis|model|integrations|cli)/")
_TORCH_PARTS = "_|nn/|optim/|autograd/|utils/|distributed/|profiler/|cuda/|fx/|func/|amp/|ao/|jit/|functional\\.py"
_TORCH = re.compile(
    rf"(torch|torchgen|functorch)/|.*(site|dist)-packages/(torch|torchgen|functorch)/|.*/torch/({_TORCH_PARTS})"
    r"|.*torchinductor_"
)
"""torch's profiler tells paths without what stands on ``sys.path``; a compiler's files lie in a folder of their own."""
_INSTALLED = re.compile(r".*(site|dist)-packages/|.*(/usr(/local)?|conda\d?|env)/bin/[^/]*$")
_PYTHON = re.compile(r"<|.*\.py:|.*/lib/python\d[\d.]*/|.*/Python\d+/Lib/", re.IGNORECASE)
_NATIVE = re.compile(r".*\.(c|cc|cpp|cxx|cu|cuh|h|hpp|hxx|inc|s|pyx|so|dylib|dll|pyd)(\.\d+)*$|\?*$", re.IGNORECASE)


class Owner(IntEnum):
    """Whose a frame is; of a stack the smallest number names its line."""

    USER = 0
    INSTALLED = 1
    TORCH = 2
    TBMEM = 3
    PYTHON = 4
    """The standard library, and what has no file: frozen modules, ``exec`` of a string."""
    NATIVE = 5
    """Not Python."""


@functools.lru_cache(maxsize=65536)
def owner_of(file: str, libraries: tuple[str, ...] = ()) -> Owner:
    """Whose a file is.

    Args:
        file: ``co_filename``, or the path in a trace or a snapshot, whole or as torch's profiler shortens it.
        libraries: Folders, each with a slash at its end, of which it is known that they hold no code of the user's.
    """
    path = file.replace("\\", "/")
    if _NOTEBOOK.match(path) or _DEMO.match(path):
        return Owner.USER
    if _NATIVE.match(path):
        return Owner.NATIVE
    if path.startswith(_PACKAGE) or _TBMEM.match(path):
        return Owner.TBMEM
    if _TORCH.match(path):
        return Owner.TORCH
    if _INSTALLED.match(path):
        return Owner.INSTALLED
    if _PYTHON.match(path) or _is_standard(path):
        return Owner.PYTHON
    return Owner.INSTALLED if path.startswith(libraries) else Owner.USER


def _is_standard(path: str) -> bool:
    """Whether a path without the folders of ``sys.path`` is of a module of Python's own."""
    first = path.partition("/")[0]
    return first.removesuffix(".py") in sys.stdlib_module_names and (first.endswith(".py") or first != path)
