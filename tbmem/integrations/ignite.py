"""Runs a MemoryCallback on an Ignite Engine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from tbmem.config import ConfigSource
from tbmem.errors import UsageError
from tbmem.integrations.base import RunResults, TrainingSession, finding_metrics
from tbmem.model.finding import Finding
from tbmem.requirements import require

require("ignite", extra="ignite", minimum="0.5", distribution="pytorch-ignite")

import ignite  # noqa: E402  (only where it is installed)
from ignite.engine import Engine, Events, EventsList  # noqa: E402


class IgniteMemory(RunResults):
    """``IgniteMemory(model, optimizer).attach(trainer)``: a MemoryCallback for each ``trainer.run()``.

    Findings become metrics of the engine (``engine.state.metrics["tbmem/leak"]``), which Ignite's loggers and
    progress bars show.

    The configuration is given as to ``tbmem.MemoryCallback``.

    Args:
        model: Model whose tensors are named in the address book; optional.
        *optimizers: Found at their first step by default.
    """

    def __init__(
        self,
        model: Any = None,
        *optimizers: Any,
        config: ConfigSource = None,
        overrides: Iterable[str] = (),
        **sections: Any,
    ) -> None:
        self.session = TrainingSession(config, overrides, sections)
        self._model = model
        self._optimizers = optimizers
        self._running: Engine | None = None
        self._interrupted: Engine | None = None

    def attach(self, engine: Engine, event: Any = Events.ITERATION_COMPLETED) -> IgniteMemory:
        """Watch each run of an engine; returns itself.

        Args:
            engine: The trainer, or an evaluator.
            event: What ends a step; ``Events.ITERATION_COMPLETED(every=4)`` where gradients of four batches
                are accumulated.

        Raises:
            UsageError: It is attached to this engine already.
        """
        if engine.has_event_handler(self._begin, Events.STARTED):
            raise UsageError("this IgniteMemory is attached to this engine already: each step would count twice")
        events = list(event) if isinstance(event, EventsList) else [event]
        engine.add_event_handler(Events.STARTED, self._begin, events)
        engine.add_event_handler(event, self._step, events)
        for end in (Events.COMPLETED, Events.TERMINATE):
            engine.add_event_handler(end, self._end)
        engine.add_event_handler(Events.INTERRUPT, self._interrupt)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self._fail)
        return self

    def _begin(self, engine: Engine, events: list[Any], taken: int | None = None) -> None:
        if self._running is not None:
            return  # an evaluator inside the trainer's run belongs to the trainer's steps
        self._running, self._interrupted = engine, None
        self.session.begin(None, training=engine)
        self.session.watch(self._model, self._optimizers)
        resumed_after_step = _fired(engine, events) if taken is None else taken
        self.session.note("ignite", ignite.__version__, resumed_after_step)

    def _step(self, engine: Engine, events: list[Any]) -> None:
        if self._interrupted is engine:
            self._begin(engine, events, _fired(engine, events) - 1)
        if self._running is engine:
            self.session.step(partial(_log, engine))

    def _end(self, engine: Engine, error: BaseException | None = None) -> None:
        if self._running is engine:
            self._running = None
            self.session.end(partial(_log, engine), error=error)

    def _interrupt(self, engine: Engine) -> None:
        """End the run; it may be continued later without an event."""
        if self._running is engine:
            self._end(engine)
            self._interrupted = engine

    def _fail(self, engine: Engine, error: BaseException) -> None:
        self._end(engine, error)
        # a handler stops the exception: if only ours exist, it is raised as without them
        handlers = getattr(engine, "_event_handlers", {}).get(Events.EXCEPTION_RAISED, ())
        if all(isinstance(getattr(handler, "__self__", None), IgniteMemory) for handler, *_ in handlers):
            raise error


def _log(engine: Engine, finding: Finding) -> None:
    engine.state.metrics.update(finding_metrics(finding))


def _fired(engine: Engine, events: Iterable[Any]) -> int:
    """How often events have fired in the runs of an engine, which counts iterations and epochs only."""
    fired = 0
    for event in events:
        try:
            count = engine.state.get_event_attrib_value(event)
        except RuntimeError:
            return int(engine.state.iteration)  # a custom event, which is not counted
        chosen = getattr(event, "filter", None)
        fired += count if chosen is None else sum(bool(chosen(engine, number)) for number in range(1, count + 1))
    return fired
