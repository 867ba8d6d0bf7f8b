"""What one memory.step() costs, beside Lightning's DeviceStatsMonitor on the same steps of the same process.

    python benchmarks/monitor_overhead.py [--steps 5000] [--rounds 5]

All variants are callbacks of Lightning's own Trainer, which fits the same small model with a TensorBoard logger;
tbmem's is four lines that call memory.step(). Fits of all variants take turns, there and back. What a variant adds to a
step is its fit's time per step less that of the same round's fit with an empty callback; time inside the callback
itself is printed beside it. The first fifth of each fit is left out, for it warms up. Both tables have the median over
rounds (over steps in the plain loop), and the mean in parentheses. Without Lightning a plain loop is timed, and tbmem
alone. Nothing is synchronised. The model lies on the GPU where there is one, which may be simulated
(benchmarks/on_simulated_gpu.py): kernels take no time there, so that a step is its Python and its launches.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
import warnings
from array import array
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from harness import heading, table

from tbmem import MemoryCallback

INTERVALS = (10, 1)
LIMITS = {10: 1 / 4, 1: 1 / 10}
"""Largest share of what DeviceStatsMonitor adds, by logging interval."""


def make_model() -> torch.nn.Module:
    """The model that every variant trains."""
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))


def make_callback(folder: str, every: int) -> MemoryCallback:
    """tbmem: counters, verdict, log, scalars and console lines; no profiler."""
    return MemoryCallback(
        run={"logdir": folder},
        monitor={"log_every_n_steps": every},
        profiling={"enabled": False},
        output={"summary": False},
    )


def used_device() -> torch.device:
    """The GPU, if there is one."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def plain_loop(steps: int, folder: str, every: int | None) -> tuple[list[float], list[float]]:
    """Seconds of each step of a plain loop, and those inside memory.step(); without it if ``every`` is ``None``."""
    device = used_device()
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 64, device=device)
    # made beforehand, and of plain numbers: a list that grows with the steps is just what tbmem looks for
    whole, spent = (array("d", bytes(8 * steps)) for _ in range(2))
    with nullcontext() if every is None else make_callback(folder, every) as memory:
        for step in range(steps):
            started = time.perf_counter()
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            began = time.perf_counter()
            if memory is not None:
                memory.step()
            ended = time.perf_counter()
            whole[step], spent[step] = ended - started, ended - began
    return whole.tolist(), spent.tolist()


def fit(steps: int, folder: str, variant: str, every: int) -> tuple[float, float]:
    """Seconds per step of one fit, and seconds per step inside the callback."""
    import lightning.pytorch as lightning
    from lightning.pytorch.callbacks import DeviceStatsMonitor
    from lightning.pytorch.loggers import TensorBoardLogger

    class Small(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Watch(lightning.Callback):
        """Calls memory.step(), as a user without an adapter would."""

        def __init__(self, memory: MemoryCallback) -> None:
            self.memory = memory

        def on_train_batch_end(self, *_: Any) -> None:
            self.memory.step()

    class Clock(lightning.Callback):
        """Time from the first batch's end, when all is warm, to the last's."""

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            now = time.perf_counter()
            if trainer.global_step == steps // 5:
                self.began = now
                spent[0] = 0.0
            self.ended = now

    with ExitStack() as stack:
        clock = Clock()
        spent = [0.0]
        callbacks: list[Any] = [lightning.Callback()]  # the trainer's own cost of one more callback is nobody's
        if variant == "tbmem":
            callbacks = [Watch(stack.enter_context(make_callback(folder, every)))]
        elif variant == "DeviceStatsMonitor":
            callbacks = [DeviceStatsMonitor(cpu_stats=True)]
        for callback in callbacks:
            for hook in ("on_train_batch_start", "on_train_batch_end"):
                setattr(callback, hook, timed(getattr(callback, hook), spent))
        trainer = lightning.Trainer(
            max_steps=steps,
            logger=TensorBoardLogger(folder),
            log_every_n_steps=every,
            callbacks=[*callbacks, clock],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="auto",
            devices=1,
        )
        rows: Any = torch.randn(16 * steps, 64)
        data: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(rows, batch_size=16)
        trainer.fit(Small(), data)
    counted = steps - steps // 5
    return (clock.ended - clock.began) / counted, spent[0] / counted


def timed(call: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The same call, its time added to ``spent``."""

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*arguments, **keywords)
        finally:
            spent[0] += time.perf_counter() - began

    return wrapper


def compare(steps: int, rounds: int, folder: str) -> None:
    """Print what each variant adds to a fit."""
    peer, rows = "DeviceStatsMonitor", []
    for every in INTERVALS:
        took: dict[str, list[float]] = {"nothing": [], "tbmem": [], peer: []}
        inside: dict[str, list[float]] = {name: [] for name in took}
        for turn in range(rounds + 1):
            # there and back, so that no variant always comes after the same one
            for name in took if turn % 2 else reversed(took):
                seconds, spent = fit(steps, folder, name, every)
                if turn:  # the first round warms everything up
                    took[name].append(seconds * 1e6)
                    inside[name].append(spent * 1e6)
        added = {
            name: [each - base for each, base in zip(values, took["nothing"], strict=True)]
            for name, values in took.items()
        }
        rows += [
            [f"{name}, every {every}", summed_up(added[name]), summed_up(inside[name])] for name in ("tbmem", peer)
        ]
        shares = [share(added["tbmem"], added[peer]), share(inside["tbmem"], inside[peer])]
        rows.append([f"share, at most {LIMITS[every]:.2f}", *shares])
    print(table(["in Lightning's fit", "µs added to a step", "µs inside the callback"], rows))


def summed_up(values: list[float]) -> str:
    """Median, and the mean in parentheses."""
    return f"{statistics.median(values):.1f} ({statistics.mean(values):.1f})"


def share(ours: list[float], theirs: list[float]) -> str:
    """Ratio of medians, and of means in parentheses."""
    medians = statistics.median(ours) / statistics.median(theirs)
    return f"{medians:.3f} ({statistics.mean(ours) / statistics.mean(theirs):.3f})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=5000)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)

    print(heading("monitor_overhead.py: cost of one memory.step() outside profiler windows"))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        # console lines are made and written as everywhere, but not shown
        handler = logging.StreamHandler(stack.enter_context(open(os.devnull, "w")))
        logging.getLogger("tbmem").addHandler(handler)
        stack.callback(logging.getLogger("tbmem").removeHandler, handler)
        plain_loop(given.steps // 5, folder, None)  # warms up
        rows = []
        for every in (None, *INTERVALS):
            whole, spent = ([seconds * 1e6 for seconds in part] for part in plain_loop(given.steps, folder, every))
            name, inside = ("without tbmem", "-") if every is None else (f"every {every}", summed_up(spent))
            rows.append([name, summed_up(whole), inside])
        print(table([f"plain loop on {used_device()}, logging", "µs of a step", "µs inside memory.step()"], rows))
        print()
        try:
            compare(given.steps, given.rounds, folder)
        except ImportError:
            print("(lightning is not installed, so no peer: pip install -c constraints.txt --group bench)")


if __name__ == "__main__":
    main()
