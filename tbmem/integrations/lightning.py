"""Runs a MemoryCallback as a callback of the Lightning Trainer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from tbmem.config import ConfigSource
from tbmem.integrations.base import FindingLogger, RunResults, TrainingSession, finding_metrics, in_use, version_of
from tbmem.model.finding import Finding
from tbmem.present.lines import finding_line

_PACKAGES = {"lightning.pytorch": "lightning", "pytorch_lightning": "pytorch_lightning"}
"""The two packages of Lightning have unrelated classes."""


class LightningMemory(
    RunResults,
    *(module.Callback for module in in_use(_PACKAGES, extra="lightning", minimum="2.2")),  # type: ignore[misc]
):
    """``Trainer(callbacks=[LightningMemory()])``: a MemoryCallback that writes to the trainer's log folder.

    A step is an optimizer step, as in ``trainer.global_step``: batches whose gradients are accumulated belong to one.
    Under manual optimization, and in validate, test and predict, it is a batch. The sanity check is not counted. The
    configuration is given as to ``tbmem.MemoryCallback``; files go to ``<trainer.log_dir>/tbmem`` unless it names
    ``run.logdir``.
    """

    def __init__(self, config: ConfigSource = None, overrides: Iterable[str] = (), **sections: Any) -> None:
        super().__init__()
        self.session = TrainingSession(config, overrides, sections)
        self._global_step = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin on every rank, since Lightning broadcasts the log folder."""
        self._begin(trainer, "tbmem")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Register optimizers and the restored step; both exist at this point."""
        self._global_step = trainer.global_step
        self.session.watch(pl_module, trainer.optimizers)
        # under manual optimization the trainer's count is of every optimizer's steps, and ours of batches
        taken = self._global_step if pl_module.automatic_optimization else trainer.fit_loop.total_batch_idx + 1
        self.session.note("lightning", version_of(trainer), resumed_after_step=taken)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Record a step, unless gradients are still accumulated."""
        if self.session.is_repeated():
            return
        before, self._global_step = self._global_step, trainer.global_step
        if before != self._global_step or not pl_module.automatic_optimization:
            self.session.step(*_loggers(trainer))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the run while the loggers are still open."""
        self.session.end(*_loggers(trainer))

    def _evaluation_start(self, trainer: Any, pl_module: Any) -> None:
        # a validation that is part of ``fit`` belongs to its run
        if trainer.state.fn != "fit":
            self._begin(trainer, f"tbmem-{trainer.state.fn.value}")
            self.session.watch(pl_module, ())
            self.session.note("lightning", version_of(trainer), resumed_after_step=0)

    on_validation_start = on_test_start = on_predict_start = _evaluation_start

    def _evaluation_step(self, trainer: Any, *_: Any) -> None:
        if trainer.state.fn != "fit" and not self.session.is_repeated():
            self.session.step(*_loggers(trainer))

    on_validation_batch_end = on_test_batch_end = on_predict_batch_end = _evaluation_step

    def _evaluation_end(self, trainer: Any, *_: Any) -> None:
        if trainer.state.fn != "fit":
            self.session.end(*_loggers(trainer))

    on_validation_end = on_test_end = on_predict_end = _evaluation_end

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close everything; Lightning raises the exception again."""
        self.session.end(*_loggers(trainer), error=exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """End the run if it has not ended."""
        self.session.end()

    def _begin(self, trainer: Any, name: str) -> None:
        folder = trainer.log_dir
        is_logged = bool(trainer.loggers) and isinstance(folder, str)
        logdir, name_there = (folder, name) if is_logged else (f"{trainer.default_root_dir}/runs", None)
        self.session.begin(logdir, name_there, training=trainer)


def _loggers(trainer: Any) -> list[FindingLogger]:
    return [partial(_log, logger, trainer.global_step) for logger in trainer.loggers]


def _log(logger: Any, step: int, finding: Finding) -> None:
    """Log metrics, and the text to loggers that support it."""
    logger.log_metrics(finding_metrics(finding), step=step)
    add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
    if add_text is not None:
        add_text(f"tbmem/{finding.kind.value}", finding_line(finding), global_step=step)
