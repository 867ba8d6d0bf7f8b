"""What an exception says of memory that ran out: messages as torch, CUDA and Linux write them."""

from __future__ import annotations

import errno

import numpy as np
import pytest
import torch

from tbmem.errors import UsageError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.sources.torch_state.out_of_memory import (
    device_of,
    is_out_of_memory,
    out_of_memory_in,
    ran_out_of_memory,
    requested_bytes,
)
from tbmem.units import GIB

CUDA_ERROR = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free."
)
CPU_ERROR = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    " 4000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("error", "requested", "device"),
    [
        (CUDA_ERROR, 2 * GIB, "cuda:0"),
        (CPU_ERROR, 4_000_000_000, "cpu"),
        (MemoryError(), None, "cpu"),
        (MemoryError("Unable to allocate 7.50 GiB for an array with shape (1,)"), int(7.5 * GIB), "cpu"),
        (MemoryError("Unable to allocate 128. TiB for an array with shape (1,)"), 128 << 40, "cpu"),
        (RuntimeError("CUDA error: out of memory"), None, "cuda:0"),
        (RuntimeError("Caught MemoryError in DataLoader worker process 0.\nOriginal Traceback ..."), None, "cpu"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"), None, "mps"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), None, "cuda:0"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), 8, "cpu"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), None, "cpu"),
        (RuntimeError("std::bad_alloc"), None, "cpu"),
    ],
)
def test_what_an_exception_says(error: BaseException, requested: int | None, device: str) -> None:
    assert is_out_of_memory(error)
    assert (requested_bytes(error), device_of(error)) == (requested, device)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes differ"),
        OSError(errno.ENOENT, "gone"),
        ValueError("out of memory"),
        UsageError("no memory"),
    ],
)
def test_another_error_says_no_such_thing(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_numpys_own_error_tells_to_the_byte() -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 50, np.float64)
    assert requested_bytes(caught.value) == 8 << 50


def test_the_second_gpu_and_an_xpu_are_named_by_the_error() -> None:
    cuda = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of ...")
    xpu = torch.OutOfMemoryError("XPU out of memory. Tried to allocate 512 bytes. XPU 3 has a total capacity of ...")

    assert (device_of(cuda), requested_bytes(cuda)) == ("cuda:1", 20 << 20)
    assert (device_of(xpu), requested_bytes(xpu)) == ("xpu:3", 512)


def test_an_error_that_was_raised_from_it_says_so_too() -> None:
    # given a trainer that wraps what the loop raises, twice, and an error raised from itself
    inner, middle, outer = MemoryError(), ValueError("batch 7"), KeyError("trainer")
    outer.__cause__, middle.__cause__ = middle, inner
    circle = ValueError("no end")
    circle.__cause__ = circle
    # then
    assert out_of_memory_in(outer) is inner
    assert out_of_memory_in(circle) is None
    assert out_of_memory_in(None) is None


def test_a_run_ran_out_by_its_error_or_by_a_failed_request() -> None:
    def finding(kind: FindingKind) -> Finding:
        return Finding(
            kind=kind, severity=Severity.CRITICAL, message="", advice="", device="cuda:0", first_step=3, last_step=3
        )

    assert ran_out_of_memory(MemoryError(), [])
    assert ran_out_of_memory(KeyboardInterrupt(), [finding(FindingKind.OOM)])
    assert not ran_out_of_memory(ValueError(), [finding(FindingKind.NEAR_CAPACITY)])
