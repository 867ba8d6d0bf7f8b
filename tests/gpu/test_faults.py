"""Programs that misuse a simulated GPU: torch behaves as on a real one, and nothing outside is touched."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tbmem.model.gpus import Gpu, gpu_named
from tbmem.rehearsal.environment import is_simulated, rehearsal_environment
from tbmem.units import MIB

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not is_simulated(), reason="misuses the GPU: only a simulated one"),
]
H100 = gpu_named("h100-80gb")


def output_of(program: str, gpu: Gpu = H100, devices: int = 1, code: int = 0) -> str:
    """What a program prints on these GPUs; it must end with ``code``."""
    environment = rehearsal_environment(gpu, devices)
    command = [sys.executable, "-c", "import torch\n" + textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_a_block_that_is_freed_twice_and_a_thousand_segments() -> None:
    # given a program that frees device memory twice, and one that takes a segment for each tensor
    program = """
        import ctypes
        cuda, pointer = ctypes.CDLL(None), ctypes.c_size_t()
        cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
        print(cuda.cudaFree(pointer), cuda.cudaFree(pointer), cuda.cudaGetLastError())
        kept = [torch.empty(21 << 20, dtype=torch.uint8, device="cuda") for _ in range(1000)]
        print(len(torch.cuda.memory_snapshot()), torch.cuda.memory_reserved() >> 20)
        del kept
        torch.cuda.empty_cache()
        print(torch.cuda.memory_reserved())
    """
    # when they run, then the second is CUDA's error, and the cache goes back to the device
    assert output_of(program).split("\n")[:3] == ["0 1 1", "1000 22000", "0"]


def test_more_memory_than_there_is() -> None:
    # given devices of 1 MiB and of 80 GB, when more is asked for, then it is torch's own exception
    program = """
        for bytes in (1, 1 << 40):
            try:
                torch.empty(bytes, dtype=torch.uint8, device="cuda")
                print("ok")
            except torch.OutOfMemoryError as error:
                print(str(error).split(".")[0])
    """
    assert output_of(program).split("\n")[:2] == ["ok", "CUDA out of memory"]
    tiny = replace(H100, total=MIB, context=0)
    assert output_of(program, tiny).split("\n")[:2] == ["CUDA out of memory"] * 2


def test_eight_devices_and_one_that_is_not_there() -> None:
    # given eight GPUs, when tensors move between them, then each has its own memory; a ninth is an error
    program = """
        one = torch.ones(3, device="cuda:7")
        other = one.to("cuda:3")
        print(torch.cuda.device_count(), [torch.cuda.memory_allocated(each) for each in range(8)])
        print(torch.nn.DataParallel(torch.nn.Linear(4, 4).cuda())(torch.randn(16, 4, device="cuda")).shape[0])
        try:
            torch.ones(1, device="cuda:8")
        except RuntimeError as error:
            print("invalid device ordinal" in str(error))
    """
    assert output_of(program, devices=8).split("\n")[:3] == ["8 [0, 0, 0, 512, 0, 0, 0, 512]", "16", "True"]


def test_a_forked_child_and_threads() -> None:
    # given a GPU in use, when a forked child uses it, then torch refuses; threads share it
    program = """
        import os, threading
        torch.ones(1, device="cuda")
        if os.fork() == 0:
            try:
                torch.ones(1, device="cuda")
            except RuntimeError as error:
                os.write(1, str(error)[:54].encode() + b"\\n")
            os._exit(0)
        os.wait()
        work = lambda: [torch.randn(1000, device="cuda").sum() for _ in range(50)]
        threads = [threading.Thread(target=work) for _ in range(4)]
        [each.start() for each in threads], [each.join() for each in threads]
        print(torch.cuda.memory_allocated())
    """
    assert output_of(program).split("\n")[:2] == ["Cannot re-initialize CUDA in forked subprocess. To use", "0"]


def test_endings() -> None:
    # given programs that end at once and by an interrupt, when they do, then their exit codes are their own
    assert output_of("import os; torch.ones(1, device='cuda'); os._exit(7)", code=7) == ""
    program = "import torch, time\ntorch.ones(1, device='cuda')\nprint('ready', flush=True)\ntime.sleep(60)"
    environment = rehearsal_environment(H100)
    started = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in started.communicate(timeout=60)[1]
    assert started.returncode in (-signal.SIGINT, 130)


def test_programs_that_are_not_python_and_torch_itself_are_untouched() -> None:
    # given torch's folder, and a program that is not Python
    began = time.time()
    maps = output_of("import subprocess; print(subprocess.run(['cat', '/proc/self/maps'], capture_output=True).stdout)")
    # when a program has used the device, then neither has anything of it
    assert "tbmem" not in maps
    libraries = Path(torch.__file__).with_name("lib")
    assert not [path.name for path in libraries.iterdir() if path.stat().st_mtime > began]
