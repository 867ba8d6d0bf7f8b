"""What the program lets go of is gone, under every entry point of tbmem as without it.

Weak references to the model, the optimizer, and the inputs, activations and outputs of each step tell it: by reference
counts alone, as long as the program itself makes no cycle; after one run of the collector where a framework does.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tbmem
from tbmem.runtime.meter import MemoryMeter
from tbmem.sources.retainers.search import RetainerSearch
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tests.conftest import read_malloc_at_each_step
from tests.sources.fakes import FakeMemory

pytestmark = pytest.mark.torch_versions

STEPS = 13
"""One more than two windows reach."""


class Training:
    """A training, and weak references to all that it makes and lets go of."""

    def __init__(self) -> None:
        layers = [torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.Softmax(-1)]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.long_lived = [weakref.ref(self.model), weakref.ref(self.optimizer)]
        self.long_lived += [weakref.ref(parameter) for parameter in self.model.parameters()]
        self.short_lived: list[tuple[int, str, weakref.ref[Any]]] = []
        self.kept: set[tuple[int, str]] = set()
        self.number = 0

    def step(self) -> None:
        """A step, and a forward whose backward never comes."""
        self.number += 1
        inputs = self._note("inputs", torch.randn(4, 8))
        output = self._forward(inputs)
        self._note("loss", output.square().mean()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._forward(self._note("inputs of an evaluation", torch.randn(4, 8))).detach().mean()

    def look(self) -> None:
        """A step is over, ``memory.step()`` too: note what is still there of it and of those before."""
        self.kept |= {(step, name) for step, name, there in self.short_lived if there() is not None}

    def _forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.model:
            value = self._note(type(layer).__name__, layer(value))
        value = self._note("exp", value.exp())
        return self._note("a custom function's", _SavesItsOutput.apply(value))

    def _note(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        self.short_lived.append((self.number, name, weakref.ref(tensor)))
        self.short_lived.append((self.number, f"storage of {name}", weakref.ref(tensor.untyped_storage())))
        return tensor


class _SavesItsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        result = value.tanh()
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        _, result = ctx.saved_tensors
        return gradients[0] * (1 - result * result)


PATIENT = {"max_seconds": 60.0}
"""For evidence in the process of many tests, whose millions of objects take longer to look through than a program's."""

EntryPoint = Callable[[Training, Path, pytest.MonkeyPatch], object]
"""Runs a training and returns what the program may keep of tbmem's."""


def _sections(folder: Path) -> dict[str, Any]:
    return {"run": {"logdir": str(folder), "name": "run"}, "output": {"summary": False}}


def _loop(training: Training, step: Callable[[], object] = lambda: None, steps: int = STEPS) -> None:
    for _ in range(steps):
        training.step()
        step()
        training.look()


def _callback(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    with tbmem.MemoryCallback(**_sections(folder), profiling={"repeat": 2}) as memory:
        _loop(training, memory.step)
    return memory


def _watched(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    with tbmem.MemoryCallback(**_sections(folder), profiling={"repeat": 2}) as memory:
        memory.watch(training.model, training.optimizer)
        _loop(training, memory.step)
    return memory


def _started(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    """Ends within a window."""
    memory = tbmem.MemoryCallback(**_sections(folder))
    memory.start()
    _loop(training, memory.step, steps=5)
    memory.stop()
    training.look()
    return memory


def _failed(training: Training, folder: Path, patch: pytest.MonkeyPatch, error: str = "the user's own") -> object:
    """An exception ends the run within a window; its frames hold what the step held."""

    def run() -> object:
        held = training._note("a variable of the frame", torch.ones(3))
        memory = tbmem.MemoryCallback(**_sections(folder))
        with memory:
            for _ in range(5):
                training.step()
                memory.step()
            raise RuntimeError(error) if held is not None else AssertionError
        return memory

    with pytest.raises(RuntimeError) as raised:
        run()
    del raised
    training.look()
    return None


def _out_of_memory(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    return _failed(
        training, folder, patch, "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
    )


def _monitor(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    with tbmem.MemoryMonitor(folder=folder) as monitor:
        _loop(training, monitor.step)
    return monitor


def _profiler(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    with tbmem.MemoryProfiler(folder=folder, wait=0, warmup=1, active=2, repeat=0) as profiler:
        profiler.watch(training.model, training.optimizer)
        _loop(training, profiler.step)
    return profiler


def _snapshots(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    """As on an accelerator: a memory history beside the trace, or all along."""
    patch.setattr(MemoryHistory, "of_this_process", classmethod(lambda cls, most: MemoryHistory(FakeMemory(), most)))
    with tbmem.MemoryCallback(**_sections(folder), snapshot={"history": "run"}) as memory:
        _loop(training, memory.step)
        memory.snapshot("by hand")
    return memory


def _record(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    with tbmem.record(logdir=str(folder), model=training.model, optimizer=training.optimizer) as recording:
        _loop(training, steps=3)
    return recording


def _record_on_an_accelerator(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    patch.setattr(MemoryHistory, "of_this_process", classmethod(lambda cls, most: MemoryHistory(FakeMemory(), most)))
    return _record(training, folder, patch)


def _births(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    births = ProfilerSurvivors()
    births.begin(1)
    for step in range(1, 6):
        training.step()
        births.mark(step)
        training.look()
    return births, births.finish()


def _holders(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    """A list grows while holders are looked for: what was in it is gone with it."""
    hunt, grows = RetainerSearch(), []
    for step in range(5):
        training.step()
        grows.append(training._note("an entry of a list", torch.ones(100)))
        if step < 3:
            hunt.look(step, sys._getframe())
        elif step == 3:
            hunt.trace(sys._getframe())
    hunt.untrace()
    result = hunt.result(sys._getframe())
    hunt.close()
    del grows
    training.look()
    return hunt, result


def _evidence(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    """A leak of the program's own, found with its line: when the list goes, so does what is in it."""
    read_malloc_at_each_step(patch)
    leak = []
    with tbmem.MemoryCallback(**_sections(folder), profiling={"enabled": False}, evidence=PATIENT) as memory:
        for _ in range(70):
            training.step()
            leak.append(training._note("an entry of a list", torch.ones(1 << 18)))
            memory.step()
    assert memory.summary is not None
    assert any("leak" in finding.kind.value for finding in memory.summary.findings), memory.summary.findings
    del leak
    training.look()
    return memory


def _meter(training: Training, folder: Path, patch: pytest.MonkeyPatch) -> object:
    """What pytest's marks use."""
    meter = MemoryMeter(None)
    _loop(training, meter.step)
    meter.close()
    return meter


ENTRY_POINTS: list[EntryPoint] = [
    _callback,
    _watched,
    _started,
    _failed,
    _out_of_memory,
    _monitor,
    _profiler,
    _snapshots,
    _record,
    _record_on_an_accelerator,
    _births,
    _holders,
    _evidence,
    _meter,
]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    _loop(Training(), steps=1)  # what torch loads at its first step keeps the frames that were running
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _alive_after(run: Callable[[Training], object]) -> tuple[set[tuple[int, str]], int]:
    """What of the steps was alive after them, and how much of the rest when the program had let go of it."""
    training = Training()
    kept_by_the_program = run(training)
    kept, long_lived = training.kept, training.long_lived
    del training
    alive = sum(there() is not None for there in long_lived)
    del kept_by_the_program
    return kept, alive


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda each: each.__name__.strip("_"))
def test_what_the_program_lets_go_of_is_gone(
    entry_point: EntryPoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given what is left without tbmem: nothing
    assert _alive_after(_loop) == (set(), 0)

    # when
    left = _alive_after(lambda training: entry_point(training, tmp_path, monkeypatch))

    # then
    assert left == (set(), 0)


def test_under_tbmem_run(tmp_path: Path) -> None:
    # given a script that keeps weak references to its inputs and looks at them itself
    program = tmp_path / "program.py"
    program.write_text("""
import gc, torch, weakref
gc.disable()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
there = [weakref.ref(model), weakref.ref(optimizer)]
def step():
    x = torch.randn(4, 8)
    there.append(weakref.ref(x))
    model(x).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    y = torch.randn(4, 8)
    there.append(weakref.ref(y))
    model(y).relu().detach()
step()
gc.collect()  # what torch loads at its first step keeps the frames that were running
for number in range(13):
    step()
del model, optimizer
print("ALIVE:", sum(one() is not None for one in there))
""")

    # when it runs as it is
    ended = subprocess.run(
        [sys.executable, "-m", "tbmem", "run", f"run.logdir={tmp_path}", "--", str(program)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=Path(__file__).parent.parent,
    )

    # then nothing is left
    assert ended.returncode == 0, ended.stderr
    assert "ALIVE: 0" in ended.stdout, ended.stdout + ended.stderr


def test_names_are_not_those_of_objects_that_are_gone(tmp_path: Path) -> None:
    # given a model that was watched and is gone, and one that may lie at the same addresses
    from tbmem.runtime.profiling.address_recorder import AddressRecorder

    addresses = AddressRecorder()
    first = Training()
    addresses.watch(first.model, first.optimizer)
    del first

    # when
    second = Training()
    addresses.watch(None, second.optimizer)
    addresses.begin()
    second.step()
    book = addresses.end({})

    # then its parameters have no names of the other's
    assert not any("weight" in note for note in map(str, set(book.names)))
