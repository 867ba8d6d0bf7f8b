"""What oneDNN takes for an LSTM, and what autograd adds into: worked out, and beside what the CPU hands out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tbmem.sources.fake.log import AllocationLog
from tbmem.sources.fake.onednn_lstm import kept_bytes, lstm_scratch
from tbmem.sources.fake.tracker import AllocationTracker
from tests.sources.fake.test_onednn import allocated, needs_onednn

_PAGES = 4 * 4096
"""Between the parts of a scratchpad."""


class Watched(TorchDispatchMode):
    """Operators of layers of LSTMs, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "mkldnn_rnn_layer" in func.name():
            self.seen.append((func, args, result))
        return result


@needs_onednn
class TestLstmScratch:
    @pytest.mark.parametrize(("width", "hidden", "steps", "samples"), [(128, 256, 64, 8), (100, 75, 33, 5)])
    def test_a_layer_takes_as_much_as_was_worked_out(
        self, width: int, hidden: int, steps: int, samples: int, tmp_path: Path
    ) -> None:
        """Given a layer, when it runs, then the highest is its results, what it keeps, and its scratch."""
        layer = nn.LSTM(width, hidden)
        values = torch.zeros(steps, samples, width, requires_grad=True)
        with Watched() as watched:
            layer(values)[0].sum().backward()
        (func, args, result), (back, back_args, _) = watched.seen
        states = torch.zeros(1, samples, hidden)

        _, most = allocated(lambda: layer(values, (states, states)), tmp_path / "forward.json")

        made = sum(part.numel() * part.element_size() for part in result[:3])
        worked_out = made + kept_bytes(args) + lstm_scratch(func, args, result)
        assert worked_out == pytest.approx(most, rel=0.02, abs=_PAGES)
        # copies of the weights, their gradients, and the gates of all times
        assert lstm_scratch(back, back_args, None) > 4 * (4 * hidden * (width + hidden + steps * samples))

    def test_without_gradients_nothing_is_kept(self) -> None:
        layer, values = nn.LSTM(64, 64), torch.zeros(10, 2, 64)
        with torch.no_grad(), Watched() as watched:
            layer(values)
            ((func, args, result),) = watched.seen
            kept, scratch = kept_bytes(args), lstm_scratch(func, args, result)

        # both weights in blocks, the gates of all times in padded rows, states and pages
        weights, gates = 2 * 4 * 64 * 64 * 4, 20 * (4 * 64 + 16) * 4
        assert kept == 0
        assert scratch == pytest.approx(weights + gates + 4 * 4 * 64, abs=_PAGES)


def sums_in_place(work: Any) -> list[bool]:
    """Of each gradient that is added to another: whether it is the other's memory."""
    log = AllocationLog()
    with AllocationTracker(log, "cpu", None):
        work()
    return [row in log._accumulated for row, name in enumerate(log._operators) if list(log.operators)[name] == ADD]


ADD = "aten::add.Tensor"


def test_a_gradient_that_is_a_view_is_not_added_into() -> None:
    """Given a weight that is used three times, then the second gradient makes a third, which takes in the last."""
    layer = nn.Linear(8, 8, bias=False)
    values = [torch.zeros(2, 8) for _ in range(3)]

    assert sums_in_place(lambda: torch.stack([layer(one).sum() for one in values]).sum().backward()) == [False, True]
