"""The training run of ``tbmem demo``: a small language model on the standard library's own sources."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from tbmem.config import Config
from tbmem.demo import Fault
from tbmem.demo.model import VOCABULARY, LanguageModel, ModelSize
from tbmem.model.run_summary import RunSummary
from tbmem.runtime.callback import MemoryCallback

_SEED = 20_260
_ENOUGH_TEXT = 4_000_000
_SEQUENCES = 16
_OUTLIER = 8
"""How many times larger the one bad batch of the injected spike is."""
_OUTLIER_AT = 0.75
"""Where in the run it comes."""


class DemoTraining:
    """Trains a small language model on the standard library's sources, step by step."""

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
        """Train on batch ``number``, from 1; returns the loss in nats per byte."""
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


def load_text() -> torch.Tensor:
    """Up to 4 MB of real text that is on every machine, as bytes: the standard library's modules."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= _ENOUGH_TEXT:
            break
    return torch.frombuffer(text[:_ENOUGH_TEXT], dtype=torch.uint8)


def draw_batch(
    text: torch.Tensor, sequences: int, length: int, generator: torch.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pieces of the text and, for each byte, the one that follows.

    Returns:
        Inputs and targets, both of shape ``(sequences, length)``, dtype int64.
    """
    starts = torch.randint(len(text) - length - 1, (sequences, 1), generator=generator)
    pieces = text[starts + torch.arange(length + 1)].to(device, torch.int64)
    return pieces[:, :-1], pieces[:, 1:]
