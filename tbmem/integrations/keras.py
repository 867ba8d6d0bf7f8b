"""Runs a MemoryCallback as a Keras 3 callback, on the torch backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbmem.config import ConfigSource
from tbmem.errors import UsageError
from tbmem.integrations.base import ContextManagerMixin, TrainingSession, finding_metrics
from tbmem.model.finding import Finding
from tbmem.requirements import require

require("keras", extra="keras", minimum="3.0")

import keras  # noqa: E402  (only where it is installed)


class KerasMemory(ContextManagerMixin, keras.callbacks.Callback):
    """``model.fit(..., callbacks=[KerasMemory()])``: a MemoryCallback for Keras 3 on its torch backend.

    A step is a batch, or as many as the optimizer accumulates gradients of. Findings are added to the model's history
    (``history.history["tbmem/leak"]``). Keras does not notify callbacks of exceptions; a ``with`` block around
    ``model.fit()`` closes everything at once::

        with KerasMemory() as memory:
            model.fit(data, callbacks=[memory])

    The configuration is given as to ``tbmem.MemoryCallback``; a UsageError says that Keras has another backend.
    """

    def __init__(self, config: ConfigSource = None, overrides: Iterable[str] = (), **sections: Any) -> None:
        super().__init__()
        if keras.backend.backend() != "torch":
            raise UsageError(f"tbmem watches torch, and Keras runs on {keras.backend.backend()}: KERAS_BACKEND=torch")
        self.session = TrainingSession(config, overrides, sections, hears_errors=False)
        self._batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin a run; the optimizer of a loaded model holds the number of steps taken."""
        self.session.begin(None, training=self.params)
        self.session.watch(self.model, ())
        optimizer = self._optimizer()
        # batches; `iterations` is batches or steps, depending on the version of Keras. Read once: on a device, reading
        # it synchronises
        self._batches = int(getattr(optimizer, "_iterations", optimizer.iterations))
        self.session.note("keras", keras.__version__, resumed_after_step=self._batches // self._accumulated())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record a step, unless gradients are still accumulated."""
        if self.session.is_repeated():
            return
        self._batches += 1
        if self._batches % self._accumulated() == 0:
            self.session.step(self._log)

    def on_train_end(self, logs: Any = None) -> None:
        """End the run; the verdict is added to the history."""
        self.session.end(self._log)

    def _optimizer(self) -> Any:
        """The optimizer that counts steps; with mixed precision it is wrapped."""
        return getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)

    def _accumulated(self) -> int:
        return int(getattr(self._optimizer(), "gradient_accumulation_steps", None) or 1)

    def _log(self, finding: Finding) -> None:
        for name, value in finding_metrics(finding).items():
            self.model.history.history.setdefault(name, []).append(value)
