"""Creates the job's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from tbmem.model.job import Job

_CLASSES: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adafactor": (torch.optim.Adafactor, {}),
}
_NO_FUSED = ("rmsprop", "adafactor")
_BLOCK, _SMALLEST = 256, 4096
"""Of bitsandbytes: values per scale, and the smallest tensor whose state is quantized."""


def make_optimizer(job: Job, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer | None:
    """The job's optimizer over parameters; ``None`` for none."""
    if job.optimizer == "none" or job.inference:
        return None
    if job.optimizer == "adamw8bit":
        return EightBitAdamW(list(parameters))
    kind, arguments = _CLASSES[job.optimizer]
    return kind(list(parameters), **arguments, **_implementation(job))


def _implementation(job: Job) -> dict[str, Any]:
    # foreach supports no mixture of distributed and plain parameters, as with tensor parallelism alone
    on_gpu = job.device == "cuda" and not job.offload and (job.tensor == 1 or job.fsdp > 1)
    if job.implementation == "default":
        # torch selects foreach on CUDA for plain parameters only, which fake ones are not
        return {"foreach": on_gpu}
    if job.implementation == "fused" and job.optimizer not in _NO_FUSED:
        return {"fused": True}
    if job.implementation == "capturable":
        return {"capturable": True, "foreach": on_gpu}
    return {"foreach": job.implementation == "foreach"}


class EightBitAdamW(torch.optim.Optimizer):
    """Allocates the state of bitsandbytes' AdamW8bit, whose kernel works in place."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Allocate the state of parameters that have none yet."""
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = self._new_state(parameter)

    @staticmethod
    def _new_state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """One byte per value and a scale per block; float32 for small tensors."""
        count, state = parameter.numel(), {}
        for name in ("first", "second"):
            state[name] = torch.zeros_like(parameter, dtype=torch.float32 if count < _SMALLEST else torch.uint8)
            if count >= _SMALLEST:
                state[f"{name}_scales"] = torch.zeros(-(-count // _BLOCK), dtype=torch.float32, device=parameter.device)
        return state


class HostOptimizer:
    """Steps on copies of the parameters in host memory: the GPU holds no optimizer state."""

    def __init__(self, job: Job, parameters: Iterable[nn.Parameter]) -> None:
        self._pairs = [(parameter, nn.Parameter(parameter.detach().to("cpu"))) for parameter in parameters]
        self._inner = make_optimizer(job, [copy for _, copy in self._pairs])
        self.name = "" if self._inner is None else f"{type(self._inner).__name__} in host memory"

    def step(self) -> None:
        """Copy gradients to the host, step, and copy parameters back."""
        for parameter, copy in self._pairs:
            copy.grad = None if parameter.grad is None else parameter.grad.to("cpu")
        if self._inner is not None:
            self._inner.step()
        with torch.no_grad():
            for parameter, copy in self._pairs:
                parameter.copy_(copy)
