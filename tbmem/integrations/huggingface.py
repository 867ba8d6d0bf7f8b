"""Runs a MemoryCallback as a callback of the Hugging Face Trainer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from tbmem.config import ConfigSource
from tbmem.integrations.base import ContextManagerMixin, TrainingSession, finding_metrics
from tbmem.model.finding import Finding
from tbmem.requirements import require

require("transformers", extra="huggingface", minimum="4.46")
require("accelerate", extra="huggingface", minimum="0.26")

import transformers  # noqa: E402  (only where it is installed)


class HuggingFaceMemory(ContextManagerMixin, transformers.TrainerCallback):
    """``Trainer(callbacks=[HuggingFaceMemory()])``: a MemoryCallback whose files are stored beside the trainer's logs.

    A step is an optimizer step, as in ``state.global_step``. Findings are added to ``state.log_history``, which the
    trainer writes into ``trainer_state.json``. The trainer does not notify callbacks of exceptions; a ``with`` block
    around ``trainer.train()`` closes everything at once::

        with HuggingFaceMemory() as memory:
            Trainer(..., callbacks=[memory]).train()

    Without it that happens when the next training begins or the program ends. The configuration is given as to
    ``tbmem.MemoryCallback``; files go to the trainer's folder of runs unless it names ``run.logdir``.
    """

    def __init__(self, config: ConfigSource = None, overrides: Iterable[str] = (), **sections: Any) -> None:
        self.session = TrainingSession(config, overrides, sections, hears_errors=False)

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Begin a run; the trainer repeats this after an out-of-memory error with a smaller batch."""
        self.session.begin(_folder_of_runs(args), training=state)
        self.session.watch(parts.get("model"), [parts.get("optimizer")])
        self.session.note("transformers", transformers.__version__, resumed_after_step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """An optimizer step, however many batches were accumulated for it."""
        if not self.session.is_repeated():
            self.session.step(partial(_log, state))

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """End the run; the verdict is added to the trainer's history."""
        self.session.end(partial(_log, state))


def _log(state: Any, finding: Finding) -> None:
    entry = {**finding_metrics(finding), "tbmem_message": finding.message, "step": state.global_step}
    state.log_history.append({**entry, "epoch": state.epoch} if state.epoch is not None else entry)


def _folder_of_runs(args: Any) -> str:
    """Folder of the trainer's TensorBoard logs: an argument until transformers 5, an environment variable since."""
    named = getattr(args, "logging_dir", None) or os.environ.get("TENSORBOARD_LOGGING_DIR")
    return os.path.expanduser(named) if named else os.path.join(args.output_dir, "runs")
