"""The Accelerate adapter, in loops with a real Accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("accelerate", reason="accelerate is not installed: pip install --group frameworks")

import accelerate
from accelerate.tracking import GeneralTracker

from tbmem.integrations.accelerate import AccelerateMemory
from tbmem.model.monitor_log import MonitorLog
from tests.integrations.conftest import find_leak

OnlyLog = Callable[[Path], MonitorLog]


class Notebook(GeneralTracker):  # type: ignore[misc]
    """A tracker that keeps what it is told."""

    name = "notebook"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[dict[str, Any], int | None]] = []

    @property
    def tracker(self) -> list[Any]:
        return self.told

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        del values

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        self.told.append((values, step))


@pytest.fixture(autouse=True)
def one_accelerator_at_a_time() -> Iterator[None]:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def _train(memory: AccelerateMemory, accelerator: Any, prepared: Any, batches: int) -> None:
    model, optimizer = prepared
    for _ in range(batches):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.randn(2, 8)).sum())
            optimizer.step()
            optimizer.zero_grad()
        memory.step()


def _prepare(accelerator: Any) -> Any:
    layer = torch.nn.Linear(8, 1)
    return accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.01))


def test_a_loop(tmp_path: Path, only_log: OnlyLog) -> None:
    # given an accelerator with a folder, and what it has prepared
    accelerator = accelerate.Accelerator(cpu=True, project_dir=str(tmp_path))
    prepared = _prepare(accelerator)

    # when a loop runs
    with AccelerateMemory(accelerator) as memory:
        _train(memory, accelerator, prepared, 12)

    # then the files are there, and the address book has the model's own names
    (book,) = list(tmp_path.glob("*/*.addresses.npz"))[:1]
    from tbmem import AddressBook

    assert {"weight", "bias"} <= {note.name for note in AddressBook.load(book).notes()}
    assert only_log(tmp_path).end is not None


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    accelerator = accelerate.Accelerator(cpu=True, project_dir=str(tmp_path), gradient_accumulation_steps=4)
    prepared = _prepare(accelerator)

    with AccelerateMemory(accelerator, profiling={"enabled": False}) as memory:
        _train(memory, accelerator, prepared, 12)

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 3


def test_a_leak_is_told_to_the_trackers(tmp_path: Path) -> None:
    tracker = Notebook()
    accelerator = accelerate.Accelerator(cpu=True, project_dir=str(tmp_path), log_with=[tracker])
    accelerator.init_trackers("test")
    prepared = _prepare(accelerator)

    with AccelerateMemory(accelerator, profiling={"enabled": False}) as memory:
        find_leak(memory.session)
        _train(memory, accelerator, prepared, 3)

    assert ({"tbmem/leak": 1.0, "tbmem/leak_bytes_per_step": float(4 << 20)}, 1) in tracker.told


def test_the_state_round_trips_and_an_exception_leaves_nothing_on(tmp_path: Path) -> None:
    # given a state that was saved while the adapter was on, and a loop that fails
    accelerator = accelerate.Accelerator(cpu=True, project_dir=str(tmp_path))
    prepared = _prepare(accelerator)
    before = [tensor.clone() for tensor in prepared[0].parameters()]
    with pytest.raises(RuntimeError, match="the user's own"), AccelerateMemory(accelerator) as memory:  # noqa: PT012
        accelerator.save_state(str(tmp_path / "state"))
        _train(memory, accelerator, prepared, 4)
        raise RuntimeError("the user's own")

    # then the state can be loaded, and the run was closed
    accelerator.load_state(str(tmp_path / "state"))
    assert all(torch.equal(*pair) for pair in zip(before, prepared[0].parameters(), strict=True))
    assert not memory.session.is_active
