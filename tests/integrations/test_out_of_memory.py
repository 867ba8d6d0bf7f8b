"""In every adapter a training that runs out of memory leaves the report, and its exception goes on."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import MonitorLog

MODULES = {
    "lightning": "lightning",
    "huggingface": "transformers",
    "accelerate": "accelerate",
    "ignite": "ignite",
    "keras": "keras",
}
FAILS_AT = 4
MEGABYTES = 24


def _step(number: int, kept: list[torch.Tensor]) -> None:
    """What the user does in a step; the fourth asks for more than there is."""
    if number < FAILS_AT:
        kept.append(torch.ones(MEGABYTES << 18))
    else:
        torch.empty(1 << 50, dtype=torch.uint8)


def _lightning(settings: dict[str, Any], kept: list[torch.Tensor]) -> None:
    lightning = import_module("lightning.pytorch")

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            _step(index + 1, kept)
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    memory = import_module("tbmem.integrations.lightning").LightningMemory(**settings)
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "logger": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_epochs=1, callbacks=[memory], **quiet)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(8, 1)))


def _huggingface(settings: dict[str, Any], kept: list[torch.Tensor]) -> None:
    transformers = import_module("transformers")

    class Model(torch.nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
            self.calls += 1
            _step(self.calls, kept)
            return {"loss": super().forward(x).sum()}

    folder = settings["run"]["logdir"]
    arguments = transformers.TrainingArguments(
        folder, max_steps=8, per_device_train_batch_size=1, report_to=[], use_cpu=True, save_strategy="no"
    )
    data = [{"x": torch.ones(1)} for _ in range(8)]
    with import_module("tbmem.integrations.huggingface").HuggingFaceMemory(**settings) as memory:
        transformers.Trainer(Model(1, 1), arguments, train_dataset=data, callbacks=[memory]).train()


def _accelerate(settings: dict[str, Any], kept: list[torch.Tensor]) -> None:
    accelerator = import_module("accelerate").Accelerator(cpu=True)
    with import_module("tbmem.integrations.accelerate").AccelerateMemory(accelerator, **settings) as memory:
        for number in range(1, 8):
            _step(number, kept)
            memory.step()


def _ignite(settings: dict[str, Any], kept: list[torch.Tensor]) -> None:
    engine = import_module("ignite.engine").Engine(lambda engine, batch: _step(engine.state.iteration, kept))
    import_module("tbmem.integrations.ignite").IgniteMemory(**settings).attach(engine)
    engine.run(range(8))


def _keras(settings: dict[str, Any], kept: list[torch.Tensor]) -> None:
    keras = import_module("keras")

    class Model(keras.Sequential):  # type: ignore[misc,name-defined]
        steps = 0

        def train_step(self, data: Any) -> Any:
            Model.steps += 1
            _step(Model.steps, kept)
            return super().train_step(data)

    model = Model([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with import_module("tbmem.integrations.keras").KerasMemory(**settings) as memory:
        model.fit(torch.ones(8, 1), torch.ones(8, 1), batch_size=1, verbose=0, callbacks=[memory])


TRAININGS: dict[str, Callable[[dict[str, Any], list[torch.Tensor]], None]] = {
    "lightning": _lightning,
    "huggingface": _huggingface,
    "accelerate": _accelerate,
    "ignite": _ignite,
    "keras": _keras,
}


@pytest.mark.parametrize("adapter", TRAININGS)
def test_a_training_that_runs_out_of_memory(
    adapter: str, tmp_path: Path, only_log: Callable[[Path], MonitorLog]
) -> None:
    if find_spec(MODULES[adapter]) is None:
        pytest.skip(f"{MODULES[adapter]} is not installed: pip install --group frameworks")
    # given something that each step keeps
    kept: list[torch.Tensor] = []
    settings = {"run": {"logdir": str(tmp_path), "name": "run"}, "profiling": {"enabled": False}}

    # when the fourth step asks for a pebibyte, then torch's own exception comes out of the framework
    with pytest.raises(RuntimeError, match="you tried to allocate 1125899906842624 bytes"):
        TRAININGS[adapter](settings, kept)

    # and the report names the step, the line, the reason and the largest holder
    (finding,) = [each for each in only_log(tmp_path).findings if each.kind is FindingKind.OOM]
    assert finding.first_step == FAILS_AT
    assert finding.evidence["line"].endswith(" in _step()")
    assert finding.evidence["requested_bytes"] == 1 << 50
    assert finding.evidence["reasons"][0]["cause"] == "capacity"
    (holder,) = [each for each in finding.evidence["holders"] if "'kept'" in each["name"]]
    assert (holder["bytes"], holder["count"]) == (3 * MEGABYTES << 20, 3)
    assert "kept.append(torch.ones(MEGABYTES << 18))" in holder["lines"][0]
    assert len(list((tmp_path / "run").glob("*.oom.txt"))) == 1
