"""Logs into the program's run of Weights & Biases, or into a run of tbmem's own."""

from __future__ import annotations

import os
from collections.abc import Sequence

import wandb
from requests.utils import get_netrc_auth

from tbmem.model.finding import Finding, Severity
from tbmem.runtime.metric_sinks import MetricSink, Point, RunInfo, Summary

_KEYS = {"WANDB_API_KEY", "WANDB_MODE"}


class WandbSink(MetricSink):
    """Scalars in the history beside ``memory/step``, findings as alerts, verdict and peak in the summary."""

    name = "wandb"

    def join(self) -> bool:  # noqa: D102
        return wandb.run is not None

    def open(self, run: RunInfo) -> None:
        """Begin a run if the program has none; offline without a key, for which wandb would ask on the terminal."""
        key = get_netrc_auth("https://api.wandb.ai")
        how = wandb.Settings() if key or _KEYS & os.environ.keys() else wandb.Settings(mode="offline")
        self._own = None if wandb.run else wandb.init(name=run.label, dir=run.folder, settings=how, reinit="create_new")
        self._rows, self._row = list[dict[str, float]](), dict[str, float]()  # all; the one not logged by the program
        self._step = self._first_step = self._run().step
        self._run().define_metric("memory/*", step_metric="memory/step")

    def log(self, points: Sequence[Point]) -> None:  # noqa: D102
        run, step = self._run(), self._run().step
        self._row, self._step = self._row if step == self._step else {}, step
        rows = [{"memory/step": point.step, **point.values} for point in points]
        self._rows = [*self._rows, *rows][-5000:] if step == self._first_step else []
        # points join the program's rows: others would advance wandb's step, and its values with step= be lost
        for row in rows:
            self._row = row | {tag: max(row.get(tag, 0), last) for tag, last in self._row.items() if "peak" in tag}
            run.log(row, step=int(row["memory/step"])) if self._own else run.log(self._row, commit=False)

    def alert(self, finding: Finding) -> None:  # noqa: D102
        level = "ERROR" if finding.severity is Severity.CRITICAL else "WARN"
        self._run().alert(f"{finding.label} on {finding.device}", finding.message, level=level)

    def summarize(self, summary: Summary) -> None:  # noqa: D102
        for row in self._rows if not self._own and self._run().step == self._first_step else ():
            self._run().log(row)
        self._run().summary.update(summary.values)

    def close(self) -> None:  # noqa: D102
        if self._own is not None:
            self._own.finish()

    def _run(self) -> wandb.Run:
        if self._own is None and wandb.run is None:
            raise RuntimeError("the program has finished its run; let MemoryCallback end before")
        return self._own or wandb.run
