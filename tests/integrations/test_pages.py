"""The code on the adapters' pages runs."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import PROJECT

PAGES = {
    "lightning": "lightning",
    "huggingface": "transformers",
    "accelerate": "accelerate",
    "ignite": "ignite",
    "keras": "keras",
}


def _names(page: str, folder: Path) -> dict[str, Any]:
    """What the page's code takes for granted."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(2, 4) for _ in range(13)]
    names: dict[str, Any] = {"torch": torch, "model": model, "optimizer": optimizer, "loader": batches}
    if page == "lightning":
        base: Any = import_module("lightning.pytorch").LightningModule

        class Module(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

            def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
                return self.layer(batch).sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        names["model"], names["loader"] = Module(), torch.utils.data.DataLoader(torch.randn(13, 4))
    if page == "huggingface":
        transformers = import_module("transformers")

        class Model(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
                return {"loss": super().forward(x).sum()}

        names["model"] = Model(4, 4)
        names["dataset"] = [{"x": batch[0]} for batch in batches]
        names["arguments"] = transformers.TrainingArguments(
            str(folder / "output"), num_train_epochs=1, per_device_train_batch_size=1, report_to=[], use_cpu=True
        )
    if page == "accelerate":
        accelerator = import_module("accelerate").Accelerator(cpu=True)
        names["accelerator"] = accelerator
        names["model"], names["optimizer"] = accelerator.prepare(model, optimizer)
    if page == "keras":
        keras = import_module("keras")
        names["model"] = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4)])
        names["model"].compile("sgd", "mse")
        names["inputs"] = names["targets"] = torch.randn(13, 4)
    if page == "ignite":
        names["loader"] = [(batch, batch) for batch in batches]
    return names


@pytest.mark.parametrize("page", PAGES)
def test_the_code_on_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(PAGES[page], reason=f"{PAGES[page]} is not installed: pip install --group frameworks")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (PROJECT / f"docs/{page}.md").read_text(), flags=re.DOTALL)

    exec(code, _names(page, tmp_path))

    assert len(list(tmp_path.rglob("*.pt.trace.json.gz"))) == 1
