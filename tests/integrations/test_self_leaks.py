"""What a framework's training lets go of is gone with tbmem's callback as with an empty one, after one collection.

The program keeps the callback: its summary is read after the training. (Lightning and Keras hang the model on each.)
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

STEPS = 7
"""The last of them is the first after a window."""

References = list[weakref.ref[Any]]
Train = Callable[[References, Any], object]


class Net(torch.nn.Module):
    """Notes what it is given and what it makes; one of its two forwards has no backward."""

    def __init__(self, there: References) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.there = there
        there += [weakref.ref(self), *map(weakref.ref, self.parameters())]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._forward(x).detach()
        return self._forward(x).mean()

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1
        for layer in self.layers:
            self.there += [weakref.ref(x), weakref.ref(x.untyped_storage())]
            x = layer(x)
        return x.exp()


def _optimizer(net: Net) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net.there.append(weakref.ref(optimizer))
    return optimizer


def _lightning(there: References, callback: Any) -> None:
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(there)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.net(batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return _optimizer(self.net)

    trainer = Trainer(
        max_steps=STEPS,
        callbacks=[callback] if callback is not None else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(STEPS, 8)))


def _huggingface(there: References, callback: Any) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(there)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.net(x)}

    arguments = TrainingArguments(
        "unused", max_steps=STEPS, per_device_train_batch_size=1, report_to=[], use_cpu=True, save_strategy="no"
    )
    model, data = Model(), [{"x": torch.randn(8)} for _ in range(STEPS)]
    callbacks = [callback] if callback is not None else []
    Trainer(model, arguments, train_dataset=data, callbacks=callbacks, optimizers=(_optimizer(model.net), None)).train()


def _accelerate(there: References, callback: Any) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    net = Net(there)
    model, optimizer = accelerator.prepare(net, _optimizer(net))

    def train(step: Callable[[], object]) -> None:
        for _ in range(STEPS):
            accelerator.backward(model(torch.randn(2, 8)))
            optimizer.step()
            optimizer.zero_grad()
            step()

    if callback is None:
        train(lambda: None)
    else:
        with callback(accelerator) as memory:
            train(memory.step)
    accelerator.free_memory()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def _ignite(there: References, callback: Any) -> None:
    from ignite.engine import Engine

    net = Net(there)
    optimizer = _optimizer(net)

    def update(engine: Engine, batch: torch.Tensor) -> float:
        loss = net(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    trainer = Engine(update)
    if callback is not None:
        callback(net, optimizer).attach(trainer)
    trainer.run([torch.randn(2, 8) for _ in range(STEPS)], max_epochs=1)


def _keras(there: References, callback: Any) -> None:
    import keras

    inner = Net(there)

    class Layer(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale = self.add_weight(shape=(8,), initializer="ones", trainable=True)
            self.inner = inner

        def call(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * self.scale).reshape(1, 1).expand(x.shape[0], 1)

    model = keras.Sequential([keras.layers.Input((8,)), Layer()])
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
    there.append(weakref.ref(model))
    callbacks = [callback] if callback is not None else []
    inputs, targets = torch.randn(2 * STEPS, 8), torch.randn(2 * STEPS, 1)
    model.fit(inputs, targets, batch_size=2, verbose=0, callbacks=callbacks)


def _empty(name: str) -> Any:
    """A callback of the framework that does nothing, where it has such."""
    if name == "lightning":
        from lightning.pytorch import Callback

        return Callback()
    if name == "huggingface":
        from transformers import TrainerCallback

        return TrainerCallback()
    if name == "keras":
        import keras

        return keras.callbacks.Callback()
    return None


def _make(name: str, sections: dict[str, Any]) -> Any:
    if name == "lightning":
        from tbmem.integrations.lightning import LightningMemory

        return LightningMemory(**sections)
    if name == "huggingface":
        from tbmem.integrations.huggingface import HuggingFaceMemory

        return HuggingFaceMemory(**sections)
    if name == "keras":
        from tbmem.integrations.keras import KerasMemory

        return KerasMemory(**sections)
    if name == "ignite":
        from tbmem.integrations.ignite import IgniteMemory

        return lambda *given: IgniteMemory(*given, **sections)
    from tbmem.integrations.accelerate import AccelerateMemory

    return lambda *given: AccelerateMemory(*given, **sections)


FRAMEWORKS: dict[str, tuple[str, Train]] = {
    "lightning": ("lightning", _lightning),
    "huggingface": ("transformers", _huggingface),
    "accelerate": ("accelerate", _accelerate),
    "ignite": ("ignite", _ignite),
    "keras": ("keras", _keras),
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _alive_after(train: Train, callback: Any) -> int:
    there: References = []
    train(there, callback)
    gc.collect()
    return sum(one() is not None for one in there)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_a_training_lets_go_of_is_gone(name: str, tmp_path: Path) -> None:
    # given what the framework itself keeps
    library, train = FRAMEWORKS[name]
    pytest.importorskip(library, reason=f"{library} is not installed: pip install --group frameworks")
    empty = _empty(name)
    alone = _alive_after(train, empty)

    # when
    sections = {"run": {"logdir": str(tmp_path), "name": "run"}, "output": {"summary": False}}
    callback = _make(name, sections)  # kept to the end
    watched = _alive_after(train, callback)

    # then
    assert list(tmp_path.rglob("*.pt.trace.json.gz"))
    assert watched <= alone
