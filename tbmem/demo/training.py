"""A configuration and a fault to inject go in; a small training under a MemoryCallback runs; its summary comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tbmem.config import Config
from tbmem.demo.fault import Fault
from tbmem.demo.model import LanguageModel, ModelSize
from tbmem.demo.text import VOCABULARY, draw_batch, load_text
from tbmem.model.summary import RunSummary
from tbmem.runtime.callback import MemoryCallback

_SEED = 20_260
_SEQUENCES = 16
_OUTLIER = 8
"""How many times larger the one bad batch of the injected spike is."""
_OUTLIER_AT = 0.75
"""Where in the run it comes."""


class DemoTraining:
    """Trains a small language model on the standard library's sources, step by step.

    Args:
        device: Where to train.
        steps: Length of the run, which places the injected spike.
        fault: What to do wrong; ``None`` for nothing.
    """

    def __init__(self, device: torch.device, steps: int, fault: Fault | None) -> None:
        torch.manual_seed(_SEED)
        self.size = ModelSize()
        self.device = device
        self.model = LanguageModel(self.size).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.history: list[torch.Tensor] = []
        self._fault = fault
        self._outlier_step = max(round(_OUTLIER_AT * steps), 1)
        self._generator = torch.Generator().manual_seed(_SEED)
        self._text = load_text()

    def step(self, number: int) -> float:
        """Train on one batch.

        Args:
            number: The step, from 1.

        Returns:
            The loss in nats per byte.
        """
        outlier = self._fault is Fault.SPIKE and number == self._outlier_step
        sequences = _SEQUENCES * (_OUTLIER if outlier else 1)
        inputs, targets = draw_batch(self._text, sequences, self.size.context, self._generator, self.device)
        scores = self.model(inputs)
        loss = F.cross_entropy(scores.view(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self._fault is Fault.LEAK:
            self.history.append(scores)  # the fault: every step's scores stay alive
        return loss.item()


def run_demo(
    config: Config,
    *,
    steps: int = 60,
    fault: Fault | None = None,
    device: torch.device | None = None,
    console: Any = None,
    on_step: Callable[[int, float], None] | None = None,
) -> RunSummary | None:
    """Train under a MemoryCallback.

    Args:
        config: The callback's configuration.
        steps: How long.
        fault: What to do wrong; ``None`` for nothing.
        device: Where; by default the accelerator if there is one, else the CPU.
        console: A rich console that draws a progress bar.
        on_step: Called after each step with its number and loss.

    Returns:
        The callback's summary; ``None`` if it was not enabled.
    """
    training = DemoTraining(device or pick_device(), steps, fault)
    with MemoryCallback(config, console=console) as memory:
        memory.watch(training.model, training.optimizer)
        for number in range(1, steps + 1):
            loss = training.step(number)
            memory.step()
            if on_step is not None:
                on_step(number, loss)
    return memory.summary


def pick_device() -> torch.device:
    """The accelerator if there is one, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")
