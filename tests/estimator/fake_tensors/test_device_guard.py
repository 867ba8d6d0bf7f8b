"""Gradients of fake CUDA tensors without a GPU, tried in processes of their own, which it changes for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tbmem.estimator.worker import child_environment


def _run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that ends like the estimator's worker: without torch's teardown, in which threads abort."""
    return subprocess.run(
        [sys.executable, "-c", f"{code}\nimport os, sys\nsys.stdout.flush()\nos._exit(0)"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=child_environment(CUDA_VISIBLE_DEVICES=""),
    )


FAKE_STEP = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from tbmem.estimator.fake_tensors.device_guard import install_guard, self_test
{prepare}
with FakeTensorMode():
    layer = torch.nn.Linear(8, 4, device="cuda")
    layer(torch.ones(2, 8, device="cuda")).sum().backward()
    print(layer.weight.grad.device.type, tuple(layer.weight.grad.shape))
real = torch.ones(3, requires_grad=True)
(real * 2).sum().backward()
print(real.grad.tolist(), torch.cuda.is_available())
"""


@pytest.mark.parametrize("prepare", ["self_test()", "install_guard(); install_guard()"])
def test_fake_tensors_get_gradients_and_real_ones_still_do(prepare: str) -> None:
    # given / when
    done = _run(FAKE_STEP.format(prepare=prepare))
    # then
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["cuda (4, 8)", "[2.0, 2.0, 2.0] False"]


@pytest.mark.parametrize(
    ("library", "reason"), [("libc10.so", "has no table of device guards"), ("libtorch_cpu.so", "has no CUDA hooks")]
)
def test_another_build_of_torch_is_an_error(library: str, reason: str) -> None:
    # given a build that has no such library
    done = _run(f"""
from tbmem.estimator.fake_tensors import device_guard
found = device_guard._library
def library(torch, name):
    if name == {library!r}:
        raise OSError("no " + name)
    return found(torch, name)
device_guard._library = library
try:
    device_guard.self_test()
except RuntimeError as error:
    print(error)
""")
    # then
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"this build of torch {reason}: no {library}"
