"""Runs a MemoryCallback in loops with a Hugging Face Accelerator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tbmem.config import ConfigSource
from tbmem.integrations.base import RunResults, TrainingSession, finding_metrics
from tbmem.model.finding import Finding
from tbmem.requirements import require

require("accelerate", extra="accelerate", minimum="0.26")

import accelerate  # noqa: E402  (only where it is installed)


class AccelerateMemory(RunResults):
    """``with AccelerateMemory(accelerator) as memory:`` around a loop, ``memory.step()`` after each batch.

    Batches whose gradients are accumulated belong to one step: ``step()`` counts where ``accelerator.sync_gradients``
    is set. Prepared models and optimizers are found automatically. The configuration is given as to
    ``tbmem.MemoryCallback``.

    Args:
        accelerator: The loop's Accelerator. Files go to its ``logging_dir`` (or ``runs``) unless the
            configuration names ``run.logdir``; findings go to its trackers.
        resumed_after_step: Steps taken before the checkpoint that is resumed.
    """

    def __init__(
        self,
        accelerator: accelerate.Accelerator,
        config: ConfigSource = None,
        overrides: Iterable[str] = (),
        *,
        resumed_after_step: int = 0,
        **sections: Any,
    ) -> None:
        self.session = TrainingSession(config, overrides, sections)
        self._accelerator = accelerator
        self._step = resumed_after_step

    def __enter__(self) -> AccelerateMemory:
        accelerator = self._accelerator
        self.session.begin(accelerator.logging_dir)
        self.session.note("accelerate", accelerate.__version__, self._step)
        # what prepare() has wrapped; the lists are private, so their absence costs names only
        optimizers = [getattr(wrapper, "optimizer", wrapper) for wrapper in getattr(accelerator, "_optimizers", ())]
        for model in getattr(accelerator, "_models", ()):
            self.session.watch(accelerator.unwrap_model(model), optimizers)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.session.end(self._log, error=error)

    def step(self) -> None:
        """Record the end of a batch."""
        if self._accelerator.sync_gradients:
            self._step += 1
            self.session.step(self._log)

    def _log(self, finding: Finding) -> None:
        # tracker by tracker: Accelerator.log() may wait for the other ranks, which have found nothing
        for tracker in self._accelerator.trackers:
            if self._accelerator.is_main_process or not getattr(tracker, "main_process_only", True):
                tracker.log(finding_metrics(finding), step=self._step)
