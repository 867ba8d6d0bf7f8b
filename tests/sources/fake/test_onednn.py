"""Copies that oneDNN makes for a convolution: worked out by hand, and beside what the CPU's allocator hands out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tbmem.sources.fake.onednn import convolution_scratch
from tbmem.units import round_up

VECTORS = {"AVX512": 16, "AVX2": 8}
CAPABILITY = torch.backends.cpu.get_cpu_capability()
needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or CAPABILITY not in VECTORS,
    reason="the copies are those of oneDNN on x86",
)


class Highest(TorchDispatchMode):
    """Of each convolution: its results and its scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        scratch = convolution_scratch(func, args, result)
        if func.name().startswith("aten::convolution"):
            parts = [part for part in (result if isinstance(result, tuple) else [result]) if part is not None]
            self.bytes.append(scratch + sum(part.numel() * part.element_size() for part in parts))
        return result


def highest(layer: nn.Module, images: torch.Tensor) -> list[int]:
    """Forward and backward, as worked out."""
    with Highest() as watched:
        output = layer(images)
        torch.autograd.grad(output, [images, *layer.parameters()], torch.zeros_like(output))
    return watched.bytes


def allocated(work: Any, path: Path) -> tuple[Any, int]:
    """What work returns, and the most that the CPU's allocator had handed out to it at once."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        marker = torch.empty(12345, dtype=torch.uint8)
        result = work()
    profiler.export_chrome_trace(str(path))
    events = [one["args"] for one in json.loads(path.read_text())["traceEvents"] if one.get("name") == "[memory]"]
    first = next(number for number, one in enumerate(events) if one["Bytes"] == len(marker))
    level, most = 0, 0
    for one in events[first + 1 :]:
        level += one["Bytes"]
        most = max(most, level)
    return result, most


@needs_onednn
class TestConvolutionScratch:
    def test_plain_tensors_are_copied_and_so_is_what_comes_out(self) -> None:
        """Given whole vectors of channels, when run, then input, weight and output are there twice at the highest."""
        images = torch.zeros(4, 64, 32, 32, requires_grad=True)
        layer = nn.Conv2d(64, 96, 3, padding=1, bias=False)
        given, made, weight = 4 * 64 * 1024 * 4, 4 * 96 * 1024 * 4, 64 * 96 * 9 * 4

        forward, backward = highest(layer, images)

        assert forward == max(given + weight + made, 2 * made)
        assert backward == given + (made + given + weight)

    def test_channels_are_padded_to_whole_vectors(self) -> None:
        """Given 20 channels in, 36 out, when run, then copies have as many as vectors hold."""
        vector = VECTORS[CAPABILITY]
        images = torch.zeros(4, 20, 40, 40, requires_grad=True)
        channel = 4 * 1600 * 4

        forward, _ = highest(nn.Conv2d(20, 36, 3, padding=1, bias=False), images)

        given, made = round_up(20, vector), round_up(36, vector)
        assert forward == max((given + made) * channel + given * made * 36, (made + 36) * channel)

    def test_channels_last_are_taken_as_they_are(self) -> None:
        """Given channels last, when run, then only weights are copied."""
        images = torch.zeros(4, 64, 32, 32).to(memory_format=torch.channels_last).requires_grad_()
        layer = nn.Conv2d(64, 96, 3, padding=1, bias=False).to(memory_format=torch.channels_last)
        given, made, weight = 4 * 64 * 1024 * 4, 4 * 96 * 1024 * 4, 64 * 96 * 9 * 4

        assert highest(layer, images) == [made + weight, given + 3 * weight]

    def test_torchs_own_kernel_keeps_columns(self) -> None:
        """Given one small picture, when run, then pixels' surroundings are kept, not for a 1x1."""
        images = torch.zeros(1, 16, 8, 8, requires_grad=True)

        wide, _ = highest(nn.Conv2d(16, 24, 3, padding=1, bias=False), images)
        narrow, _ = highest(nn.Conv2d(16, 24, 1, bias=False), images)

        assert wide == 64 * 4 * (24 + 16 * 9)
        assert narrow == 64 * 4 * 24

    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            (nn.Conv2d(64, 96, 3, padding=1), (4, 64, 32, 32)),
            (nn.Conv2d(64, 96, 3, stride=2, padding=1), (4, 64, 32, 32)),
            (nn.Conv2d(20, 36, 3, padding=1), (4, 20, 40, 40)),
            (nn.Conv2d(64, 64, 3, padding=1, groups=64), (4, 64, 32, 32)),
            (nn.ConvTranspose2d(64, 32, 2, stride=2), (4, 64, 32, 32)),
            (nn.Conv1d(32, 64, 3, padding=1), (4, 32, 512)),
        ],
        ids=["3x3", "strided", "padded", "depthwise", "transposed", "1d"],
    )
    def test_real_convolutions_allocate_as_much(self, layer: nn.Module, shape: tuple[int, ...], tmp_path: Path) -> None:
        """Given a convolution, when really run, then the allocator's highest is what was worked out, but for sums."""
        images = torch.zeros(shape, requires_grad=True)
        expected = highest(layer, images)

        output, forward = allocated(lambda: layer(images), tmp_path / "forward.json")
        gradient, wanted = torch.zeros_like(output), [images, *layer.parameters()]
        _, backward = allocated(lambda: torch.autograd.grad(output, wanted, gradient), tmp_path / "backward.json")

        assert expected == [pytest.approx(forward, rel=0.01), pytest.approx(backward, rel=0.05)]
