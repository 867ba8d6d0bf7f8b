"""The simulated device, built once without a CUDA build of torch, and called as torch calls it."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from tbmem.rehearsal import library

CAPACITY, CONTEXT = 1 << 30, 64 << 20


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built library, for a torch that wants nothing of CUDA."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    torch = library.TorchBuild(folder=tmp_path_factory.mktemp("torch"), version="0.0", cuda="13.0")
    folder = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        facts = ("-DCUDA_MAJOR=13", "-DCUDA_VERSION=13000", "-DCUDNN_VERSION=92400", "-DTORCH_ARCHITECTURES=75,80,90")
        patch.setattr(library, "_definitions", lambda _: facts)
        patch.setattr(library, "cache_folder", lambda: folder)
        return library.built_library(torch)


@pytest.fixture(scope="session")
def device(built: Path) -> ctypes.CDLL:
    """The library itself: two GPUs of 1 GiB with 64 MiB of context."""
    with pytest.MonkeyPatch.context() as patch:
        settings = {"NAME": "Test GPU", "CAPABILITY": "86", "MULTIPROCESSORS": "84", "COUNT": "2"}
        settings |= {"BYTES": str(CAPACITY), "CONTEXT_BYTES": str(CONTEXT), "NCCL_BYTES": str(32 << 20)}
        for name, value in settings.items():
            patch.setenv(f"TBMEM_GPU_{name}", value)
        loaded = ctypes.CDLL(str(built / library.MAIN))
        loaded.cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))  # the settings are read once
    loaded.cudaGetErrorString.restype = ctypes.c_char_p
    return loaded
