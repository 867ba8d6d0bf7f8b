"""Which line of a stack its reader knows."""

from __future__ import annotations

import pytest

from tbmem.analysis.source_lines import SourceLines, is_own_text
from tbmem.model.stacks import StackBuilder

TORCH = ("/x/site-packages/torch/nn/modules/linear.py", 5, "forward")
LIBRARY = ("/x/site-packages/transformers/models/llama.py", 8, "forward")
USER = ("/home/me/train.py", 31, "step")
CPP = ("", 0, "at::_ops::addmm::call(at::Tensor const&)")
NODE = ("??", 0, "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)")
OTHER = ("CUDACachingAllocator.cpp", 0, "c10::cuda::malloc(long)")
MONITOR = ("/home/me/tbmem/runtime/saved_tensors.py", 3, "_pack")


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ((CPP, TORCH, LIBRARY, USER), "me/train.py:31 step"),
        ((TORCH, LIBRARY), "models/llama.py:8 forward"),
        ((OTHER, TORCH), "modules/linear.py:5 forward"),
        ((MONITOR, USER), "me/train.py:31 step"),
        ((OTHER, CPP, NODE), "torch::autograd::generated::AddmmBackward0::apply"),
        ((OTHER, CPP), "at::_ops::addmm::call"),
        ((OTHER,), "c10::cuda::malloc"),
        ((("C:\\me\\train.py", 3, "f"), ("/x/main.py", 1, "g")), "me/train.py:3 f"),
        ((("/x/ipykernel_12/345.py", 3, "<module>"),), "ipykernel_12/345.py:3 <module>"),
    ],
)
def test_lines(stack: tuple[tuple[str, int, str], ...], line: str) -> None:
    stacks = StackBuilder()
    number = stacks.stack(stacks.frame(*frame) for frame in stack)
    lines = SourceLines(stacks.table())

    assert lines.line(number) == line
    assert len(lines.frames(number)) == len(stack)


def test_no_stack() -> None:
    lines = SourceLines(StackBuilder().table())

    assert lines.line(-1) == ""
    assert lines.frames(-1) == ()


@pytest.mark.parametrize(
    ("text", "own"),
    [("/u/train.py:31 forward", True), ("torch/nn/modules/module.py:1 _call_impl", False), ("at::empty (??)", False)],
)
def test_a_frame_as_text_is_owned_alike(text: str, own: bool) -> None:
    assert is_own_text(text) is own
