"""The owner of a source file: the user, an installed package, torch, tbmem or Python itself.

The one rule for running frames, and for traces and snapshots, which may have been recorded on another machine.
"""

from __future__ import annotations

import functools
import re
import sys
from enum import IntEnum
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent.as_posix() + "/"
_NOTEBOOK = re.compile(r"<ipython-input|<stdin>|<doctest|<console>|(.*/)?ipykernel_\d+/")
"""Notebook cells and interactive prompts."""
_DEMO = re.compile(r"(.*/)?tbmem/demo/")  # the demo's training loop counts as the user's
_TBMEM = re.compile(r"(.*/)?tbmem/(runtime|rehearsal|estimator|sources|analysis|model|integrations|notebook|cli)/")
_TORCH_PARTS = "_|nn/|optim/|autograd/|utils/|distributed/|profiler/|cuda/|fx/|func/|amp/|ao/|jit/|functional\\.py"
_TORCH = re.compile(
    rf"(torch|torchgen|functorch)/|.*(site|dist)-packages/(torch|torchgen|functorch)/|.*/torch/({_TORCH_PARTS})"
    r"|.*torchinductor_"
)
"""Also paths relative to ``sys.path``, as torch's profiler writes them, and files of its compiler."""
_PACKAGES = (
    *("accelerate", "apex", "bitsandbytes", "datasets", "deepspeed", "diffusers", "einops", "fairscale", "fairseq"),
    *("flash_attn", "huggingface_hub", "ignite", "jax", "kornia", "lightning", "lightning_fabric", "megatron", "mmcv"),
    *("mmengine", "numpy", "pandas", "peft", "PIL", "pytorch_lightning", "ray", "scipy", "sentence_transformers"),
    *("sklearn", "tensorboard", "timm", "tokenizers", "torch_geometric", "torchaudio", "torchdata", "torchmetrics"),
    *("torchtext", "torchvision", "tqdm", "transformers", "triton", "trl", "vllm", "wandb", "xformers"),
)
"""Packages as torch's profiler writes their files: relative to ``sys.path``, so without ``site-packages/``."""
_INSTALLED = re.compile(rf"({'|'.join(_PACKAGES)})/|.*(site|dist)-packages/|.*(/usr(/local)?|conda\d?|env)/bin/[^/]*$")
_PYTHON = re.compile(r"<|.*\.py:|.*/lib/python\d[\d.]*/|.*/Python\d+/Lib/", re.IGNORECASE)
_NATIVE = re.compile(r".*\.(c|cc|cpp|cxx|cu|cuh|h|hpp|hxx|inc|s|pyx|so|dylib|dll|pyd)(\.\d+)*$|\?*$", re.IGNORECASE)


class Owner(IntEnum):
    """Owner of a frame; the frame with the smallest number names a stack's line."""

    USER = 0
    INSTALLED = 1
    TORCH = 2
    TBMEM = 3
    PYTHON = 4
    """The standard library, frozen modules, ``exec`` of a string."""
    NATIVE = 5
    """Not Python."""


@functools.lru_cache(maxsize=65536)
def owner_of(file: str, libraries: tuple[str, ...] = ()) -> Owner:
    """Owner of a file as in ``co_filename`` or a recording; ``libraries`` are folders (``'…/'``) without user code."""
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
    first = path.partition("/")[0]  # a folder or file of the standard library, if relative to ``sys.path``
    is_standard = first.removesuffix(".py") in sys.stdlib_module_names and (first.endswith(".py") or first != path)
    if is_standard or _PYTHON.match(path):
        return Owner.PYTHON
    return Owner.INSTALLED if path.startswith(libraries) else Owner.USER
