"""The Ignite adapter, in runs of a real Engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("ignite", reason="pytorch-ignite is not installed: pip install --group frameworks")

from ignite.engine import Engine, Events

from tbmem.errors import UsageError
from tbmem.integrations.ignite import IgniteMemory
from tbmem.model.monitor_log import MonitorLog
from tests.integrations.conftest import find_leak

OnlyLog = Callable[[Path], MonitorLog]
NO_PROFILER = {"enabled": False}


def _trainer(*, fails_at: int = 0) -> tuple[Engine, torch.nn.Module, torch.optim.Optimizer]:
    layer = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def update(engine: Engine, batch: torch.Tensor) -> float:
        if engine.state.iteration == fails_at:
            raise RuntimeError("the user's own")
        loss = layer(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return Engine(update), layer, optimizer


def _data(batches: int) -> list[torch.Tensor]:
    return [torch.randn(2, 8) for _ in range(batches)]


def test_a_run(tmp_path: Path, only_log: OnlyLog) -> None:
    trainer, layer, optimizer = _trainer()
    memory = IgniteMemory(layer, optimizer, run={"logdir": str(tmp_path)}).attach(trainer)

    trainer.run(_data(6), max_epochs=2)

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 12
    assert len(memory.session.summary.traces) == 1
    assert only_log(tmp_path).end is not None


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    trainer, *_ = _trainer()
    memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER)
    memory.attach(trainer, Events.ITERATION_COMPLETED(every=4))

    trainer.run(_data(12))

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 3


def test_a_leak_becomes_a_metric_of_the_engine(tmp_path: Path) -> None:
    trainer, *_ = _trainer()
    memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER).attach(trainer)
    trainer.add_event_handler(Events.ITERATION_STARTED(once=3), lambda _: find_leak(memory.session))

    trainer.run(_data(12))

    assert trainer.state.metrics["tbmem/leak"] == 1.0


def test_an_exception_goes_on_and_leaves_nothing_on(tmp_path: Path) -> None:
    trainer, *_ = _trainer(fails_at=5)
    memory = IgniteMemory(run={"logdir": str(tmp_path)}).attach(trainer)

    with pytest.raises(RuntimeError, match="the user's own"):
        trainer.run(_data(12))

    assert not memory.session.is_active
    assert memory.session.summary is not None
    assert memory.session.summary.exception == "RuntimeError"


def test_of_two_the_first_counts_and_an_exception_goes_on(tmp_path: Path, only_log: OnlyLog) -> None:
    trainer, *_ = _trainer(fails_at=5)
    for _ in range(2):
        memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER).attach(trainer)

    with pytest.raises(RuntimeError, match="the user's own"):
        trainer.run(_data(12))

    assert only_log(tmp_path).rows[-1].sample.step == 4
    with pytest.raises(UsageError, match="attached to this engine already"):
        memory.attach(trainer)


def test_an_evaluator_inside_of_a_run_belongs_to_it(tmp_path: Path) -> None:
    # given one for the trainer and the evaluator that runs after each of its epochs
    trainer, *_ = _trainer()
    evaluator = Engine(lambda engine, batch: None)
    memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER).attach(trainer)
    memory.attach(evaluator, Events.ITERATION_COMPLETED(every=2))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(_data(4)))

    # when both run, then the training's steps are its own
    trainer.run(_data(6), max_epochs=2)
    assert memory.session.summary is not None
    assert memory.session.summary.steps == 12

    # and the evaluator alone is a run
    evaluator.run(_data(4))
    assert memory.session.summary.steps == 2


def test_an_exception_that_has_a_handler_ends_there_as_before(tmp_path: Path) -> None:
    # given a program that handles its engine's exceptions
    trainer, *_ = _trainer(fails_at=5)
    memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER).attach(trainer)
    handled = []
    trainer.add_event_handler(Events.EXCEPTION_RAISED, lambda _, error: handled.append(error))

    # when one is raised
    trainer.run(_data(12))

    # then it ends there
    assert handled
    assert not memory.session.is_active


def test_an_engine_that_is_interrupted_goes_on_in_a_run_of_its_own(tmp_path: Path) -> None:
    # given an engine that is interrupted after 4 of 10 iterations
    trainer, *_ = _trainer()
    memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER).attach(trainer)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=4), trainer.interrupt)
    data = _data(10)
    trainer.run(data, max_epochs=1)
    assert not memory.session.is_active

    # when it goes on
    state = trainer.run(data, max_epochs=1)

    # then the rest is a run, too, and its state is the engine's own
    assert state.iteration == 10
    assert memory.session.summary is not None
    assert memory.session.summary.steps == 6
    assert set(trainer.state_dict()) == {"epoch_length", "max_epochs", "iteration"}


@pytest.mark.parametrize(
    ("event", "taken"),
    [
        (Events.ITERATION_COMPLETED, 10),
        (Events.ITERATION_COMPLETED(every=4), 2),
        (Events.ITERATION_COMPLETED(every=4) | Events.EPOCH_COMPLETED, 4),
    ],
    ids=["each", "every fourth", "every fourth and the epoch's last"],
)
def test_a_run_that_is_resumed_goes_on_with_the_number_of_its_next_step(
    event: object, taken: int, tmp_path: Path, only_log: OnlyLog
) -> None:
    # given the state of an engine after two epochs of five iterations
    first, *_ = _trainer()
    first.run(_data(5), max_epochs=2)

    # when another goes on from there
    trainer, *_ = _trainer()
    trainer.load_state_dict(first.state_dict())
    IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER).attach(trainer, event)
    trainer.run(_data(5), max_epochs=4)

    # then its steps are counted on, as they are counted here
    assert only_log(tmp_path).rows[0].first_step == taken + 1


def test_after_an_interrupt_steps_are_counted_on(tmp_path: Path) -> None:
    trainer, *_ = _trainer()
    memory = IgniteMemory(run={"logdir": str(tmp_path)}, profiling=NO_PROFILER)
    memory.attach(trainer, Events.ITERATION_COMPLETED(every=2))
    trainer.add_event_handler(Events.ITERATION_COMPLETED(once=5), trainer.interrupt)
    data = _data(10)
    trainer.run(data, max_epochs=1)

    trainer.run(data, max_epochs=1)

    # steps 1 and 2 before it, 3, 4 and 5 after it
    assert memory.session.memory is not None
    assert memory.session.memory.monitor is not None
    assert memory.session.memory.monitor.situation().step == 6
