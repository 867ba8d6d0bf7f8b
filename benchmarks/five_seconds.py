"""Ten runs with ten different troubles on a simulated GPU, and a picture of the Overview of each, under letters.

    python benchmarks/five_seconds.py FOLDER [--gpu-python .venv-torch-2.14.1/bin/python]

The runs are made by a Python with the CUDA build of torch (``make test-gpu`` makes one). Each run has a log folder of
its own (``FOLDER/A``, ``B``, ...) with a run of the name ``train``; which letter has which trouble is in
``FOLDER/truth.json``. Someone who does not know it looks at each picture once, writes what is wrong and what to do, and
compares. The pictures are taken by ``python -m docs.make_screenshots --overviews FOLDER``.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import subprocess
from dataclasses import dataclass
from pathlib import Path

GPU_PYTHON = ".venv-torch-2.14.1/bin/python"
SCRIPT = """\
import collections, os, signal, time
import torch
from torch import nn
from torch.nn import functional as F


class Samples(torch.utils.data.Dataset):
    def __init__(self):
        self.decoded = {{}}

    def __len__(self):
        return {steps} * 8

    def __getitem__(self, index):
        image = torch.ones(64, 1024)
        {sample}
        return image


def train():
    layers = [nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers={workers})
    {setup}
    for step, images in enumerate(loader):
        batch = images.cuda()
        {before}
        output = model(batch)
        loss = F.mse_loss(output, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        {after}


if __name__ == "__main__":
    train()
"""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What a training script has beside an ordinary loop, and what is true of it."""

    truth: str
    sample: str = "pass"
    setup: str = "pass"
    before: str = "pass"
    after: str = "pass"
    workers: int = 0
    steps: int = 300


TROUBLES = {
    "leak_list": Trouble(
        truth="leak: the list 'history' keeps every output; keep numbers, or bound the list",
        setup="history = []",
        after="history.append(output.detach())",
    ),
    "leak_graph": Trouble(
        truth="leak: 'total' keeps the graph of every step; use .item() or .detach()",
        setup="total = 0.0",
        after="total = total + F.l1_loss(model(batch[:1]), batch[:1])",
    ),
    "spike": Trouble(
        truth="spike: one batch is 12 times as large as the others; look at that batch",
        before="batch = batch.repeat(12 if step == 200 else 1, 1, 1)",
    ),
    "oom_fragmentation": Trouble(
        truth="out of memory by fragmentation: expandable_segments:True",
        setup="recent = collections.deque(maxlen=14); sizes = [300 + 37 * n % 800 for n in range(150)] + [5400]",
        before="scores = torch.empty(sizes[step], 1 << 18, device='cuda')",
        after="del scores; recent.append(torch.empty(6 * sizes[step] // 10, 1 << 18, device='cuda'))",
    ),
    "oom_batch": Trouble(
        truth="out of memory in the first step: the batch is too large; smaller batch, accumulation or checkpointing",
        before="batch = batch.repeat(120, 1, 1)",
    ),
    "host_leak": Trouble(
        truth="leak on the host, the GPU is stable: the list 'predictions' keeps arrays; write them out or bound it",
        setup="predictions = []",
        after="predictions.append(output.detach().cpu().numpy())",
    ),
    "worker_leak": Trouble(
        truth="leak in the DataLoader's workers: the data set keeps every decoded sample; bound its cache",
        sample="self.decoded[index] = image",
        before="time.sleep(0.25)",  # the workers are read once a second
        workers=2,
    ),
    "cache_fills": Trouble(
        truth="nothing to do: memory grew while a bounded cache filled, and then stayed",
        setup="cache = {}",
        after="cache[step % 80] = output.detach()",
    ),
    "stable": Trouble(truth="nothing to do: stable"),
    "killed": Trouble(
        truth="killed from outside (kill -9), memory was stable: look at the machine or the job's limits",
        after="os.kill(os.getpid(), signal.SIGKILL) if step == 170 else None",
    ),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--gpu-python", default=GPU_PYTHON)
    given = arguments.parse_args()
    letters = dict(zip(string.ascii_uppercase, random.sample(sorted(TROUBLES), len(TROUBLES)), strict=False))
    for letter, name in letters.items():
        record(given.folder / letter, TROUBLES[name], "train", given.gpu_python)
    truth = {letter: {"trouble": name, "truth": TROUBLES[name].truth} for letter, name in letters.items()}
    (given.folder / "truth.json").write_text(json.dumps(truth, indent=1))


def record(logdir: Path, trouble: Trouble, run: str, gpu_python: str, *settings: str) -> None:
    """Run the script under ``tbmem run`` on a simulated T4; it may fail."""
    folder = logdir / run
    folder.mkdir(parents=True)
    script = folder / "train.py"
    parts = {name: getattr(trouble, name) for name in ("sample", "setup", "before", "after", "workers", "steps")}
    script.write_text(SCRIPT.format(**parts))
    command = [*on_gpu(gpu_python), "run", f"run.logdir={logdir}", f"run.name={run}", *settings, "--", str(script)]
    subprocess.run(command, capture_output=True, check=False, timeout=600)


def on_gpu(gpu_python: str) -> list[str]:
    """A command of tbmem on a simulated T4."""
    return [gpu_python, str(Path(__file__).with_name("on_simulated_gpu.py")), "--gpu", "t4", gpu_python, "-m", "tbmem"]


if __name__ == "__main__":
    main()
