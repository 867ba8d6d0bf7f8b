"""Results of fake kernels go in, results with what those kernels forget come out.

A fake kernel may return an empty tensor where the real one returns memory that autograd keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tbmem.units import round_up

_PAGE = 4096
_LINE = 16
"""oneDNN pads rows of float32 to whole cache lines, and past lengths at which lines would collide."""


def corrected(operator: Any, args: tuple[Any, ...], result: Any) -> Any:
    """The operator's result, with the memory that really comes with it."""
    rule = _RULES.get(operator)
    return rule(args, result) if rule is not None else result


def _rnn_workspace(args: tuple[Any, ...], result: Any) -> Any:
    """The LSTM of oneDNN keeps gates and states of all times for the backward pass.

    Source: ``src/cpu/rnn/rnn_utils.hpp`` of oneDNN (``set_workspace_sizes``): gates before and after their functions,
    three kinds of states, and outputs; compared with sizes of real runs: within 2 % where a layer is not wider at its
    input than at its output.
    """
    steps, samples, width = args[0].shape
    hidden, trains = args[10], args[-1]
    if not trains or result[3].numel():
        return result
    cells = steps * samples
    states = _pages(2 * (steps + 1) * samples * _row(max(width, hidden)))
    size = 2 * _pages(cells * _row(4 * hidden)) + 3 * states + _pages(cells * _row(hidden))
    return (*result[:3], torch.empty(size, dtype=torch.uint8, device=args[0].device))


def _row(length: int) -> int:
    padded = round_up(length, _LINE)
    return 4 * (padded + _LINE if padded % 256 == 0 else padded)


def _pages(size: int) -> int:
    return round_up(size, _PAGE)


_RULES: dict[Any, Callable[[tuple[Any, ...], Any], Any]] = {torch.ops.aten.mkldnn_rnn_layer.default: _rnn_workspace}
