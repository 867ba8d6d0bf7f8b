"""Results of fake kernels go in, results with what those kernels forget come out.

A fake kernel may return an empty tensor where the real one returns memory that autograd keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tbmem.sources.fake.onednn_lstm import kept_bytes


def corrected(operator: Any, args: tuple[Any, ...], result: Any) -> Any:
    """The operator's result, with the memory that really comes with it."""
    rule = _RULES.get(operator)
    return rule(args, result) if rule is not None else result


def _lstm_workspace(args: tuple[Any, ...], result: Any) -> Any:
    size = kept_bytes(args)
    if not size or result[3].numel():
        return result
    return (*result[:3], torch.empty(size, dtype=torch.uint8, device=args[0].device))


_RULES: dict[Any, Callable[[tuple[Any, ...], Any], Any]] = {torch.ops.aten.mkldnn_rnn_layer.default: _lstm_workspace}
