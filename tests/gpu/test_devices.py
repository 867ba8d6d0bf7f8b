"""Several GPUs in one process, a backward pass that runs out of memory, other allocators."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import tbmem
from tbmem.model.finding import FindingKind
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.sampler import Counters
from tbmem.units import MIB

pytestmark = pytest.mark.gpu
several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs: on_simulated_gpu.py --gpus 2")
QUIET = {"profiling": {"enabled": False}, "output": {"console": False}}


def tensor(size: int, device: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")


def test_kernels_that_torch_compiles_while_a_program_runs_are_launched() -> None:
    # given two of torch's: the product, and an integral of torch.special
    given = torch.ones(100, device="cuda")
    # then
    assert torch.prod(given).shape == ()
    assert torch.special.bessel_j0(given).shape == given.shape


@several
def test_each_device_has_torchs_own_counters() -> None:
    # given
    kept = [tensor(3 * MIB, 0), tensor(5 * MIB, 1)]
    counters = Counters("auto", HostMemory(workers=False))
    # when
    kept.append(tensor(7 * MIB, 1))
    samples = counters.sample(1, thorough=True)
    counters.close()
    # then
    assert [sample.device for sample in samples] == ["cuda:0", "cuda:1"]
    for index, sample in enumerate(samples):
        assert sample.allocated == torch.cuda.memory_allocated(index)
        assert sample.reserved == torch.cuda.memory_reserved(index)
        assert (sample.device_used, sample.device_total) == _usage(index)


def _usage(index: int) -> tuple[int, int]:
    free, total = torch.cuda.mem_get_info(index)
    return total - free, total


@several
def test_a_recording_of_two_devices_has_the_peaks_that_torch_counts(tmp_path: Path) -> None:
    # given
    for index in range(2):
        torch.cuda.reset_peak_memory_stats(index)
    # when
    with tbmem.record("two", logdir=str(tmp_path)) as recording:
        kept = [tensor((1 + 2 * index) * MIB + 1, index) for index in range(2) for _ in range(3)]
        kept.clear()
    path = next(path for path in recording.files if path.name.endswith(".snapshot.pickle"))
    analysis = tbmem.analyze(path)
    # then
    found = {device.name: (device.peak.bytes, device.peak_reserved_bytes) for device in analysis.devices}
    expected = {
        f"cuda:{index}": (stats["requested_bytes.all.peak"], stats["reserved_bytes.all.peak"])
        for index, stats in enumerate(map(torch.cuda.memory_stats, range(2)))
    }
    assert found == expected


@several
def test_a_leak_on_the_second_device_is_told_of_that_device(tmp_path: Path) -> None:
    # given
    kept = []
    first = tensor(MIB, 0)
    # when
    with tbmem.MemoryCallback(run={"logdir": str(tmp_path)}, **QUIET) as memory:
        for _ in range(80):
            kept.append(tensor(MIB, 1))
            memory.step()
    # then
    assert memory.summary is not None
    verdicts = {verdict.device: verdict for verdict in memory.summary.verdicts}
    assert first.numel() == MIB
    assert {name: verdict.kind for name, verdict in verdicts.items()} == {
        "cuda:0": FindingKind.STABLE,
        "cuda:1": FindingKind.LEAK,
    }
    assert "kept.append" in verdicts["cuda:1"].evidence["line"]["text"]


@pytest.mark.parametrize("whose", ["of the run", "of the program"])
def test_a_history_that_fills_its_buffer_is_no_leak(whose: str, tmp_path: Path) -> None:
    # given some 90 events of 250 bytes in each step, which the host keeps
    code = """
        import os, sys, torch, tbmem
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        options = {"run": {"logdir": sys.argv[1]}, "profiling": {"enabled": False}, "output": {"console": False}}
        if os.environ["WHOSE"] == "of the run":
            options["snapshot"] = {"history": "run"}
        else:
            torch.cuda.memory._record_memory_history(max_entries=100_000)
        with tbmem.MemoryCallback(**options) as memory:
            for _ in range(400):
                optimizer.zero_grad()
                model(torch.randn(64, 64, device="cuda")).pow(2).mean().backward()
                optimizer.step()
                memory.step()
        print(*{finding.kind.value for finding in (*memory.summary.verdicts, *memory.summary.findings)})
    """
    # when
    printed = run(code, tmp_path, WHOSE=whose)
    # then
    assert "leak" not in printed.split()


class Large(torch.autograd.Function):
    """Asks for more than there is in its backward pass, as a kernel's workspace would."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return torch.empty(1 << 50, dtype=torch.uint8, device=gradients[0].device)


def test_a_backward_pass_that_runs_out_of_memory_is_reported_with_its_line(tmp_path: Path) -> None:
    # given: autograd has a thread of its own for the device
    x = torch.ones(1000, device="cuda", requires_grad=True)
    memory = tbmem.MemoryCallback(run={"logdir": str(tmp_path)}, **QUIET)
    # when
    loss = Large.apply(x).sum()  # type: ignore[no-untyped-call]
    memory.start()
    memory.step()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        loss.backward()
    memory.stop(raised.value)
    # then
    assert memory.summary is not None
    (found,) = (each for each in memory.summary.findings if each.kind is FindingKind.OOM)
    assert (found.device, found.evidence["requested_bytes"]) == ("cuda:0", 1 << 50)
    assert "test_devices.py" in found.evidence["line"]


def run(code: str, folder: Path, **environment: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder)]
    settings = {**os.environ, **environment}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_torchs_allocator_the_counters_are_read_all_the_same(tmp_path: Path) -> None:
    # given CUDA's own asynchronous allocator, which keeps no history
    code = """
        import sys, torch, tbmem
        with tbmem.MemoryCallback(run={"logdir": sys.argv[1]}, output={"console": False}) as memory:
            for _ in range(20):
                torch.ones(3 << 20, device="cuda").sum()
                memory.step()
        assert not memory.summary.problems, memory.summary.problems
        print(torch.cuda.get_allocator_backend(), memory.summary.verdicts[0].device)
    """
    # when
    printed = run(code, tmp_path, PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
    # then
    assert printed.split() == ["cudaMallocAsync", "cuda:0"]


def test_a_forked_worker_leaves_the_device_alone(tmp_path: Path) -> None:
    # given loaders that fork after the device is in use: a call of CUDA in them fails
    code = """
        import sys, torch, tbmem
        data = torch.utils.data.DataLoader([torch.ones(8)] * 40, num_workers=2)
        held = torch.ones(1 << 20, device="cuda")
        with tbmem.MemoryCallback(run={"logdir": sys.argv[1]}, output={"console": False}) as memory:
            for batch in data:
                batch.to("cuda").sum()
                memory.step()
        assert not memory.summary.problems, memory.summary.problems
        print(memory.summary.steps)
    """
    # when / then
    assert run(code, tmp_path).split() == ["40"]
