"""Logs into the program's active run of MLflow, or into a run of tbmem's own."""

from __future__ import annotations

from collections.abc import Sequence

import mlflow
from mlflow.entities import Metric, RunTag
from mlflow.environment_variables import MLFLOW_RUN_ID

from tbmem.model.finding import Finding
from tbmem.runtime.metric_sinks import MetricSink, Point, RunInfo, Summary

_MOST_METRICS, _MOST_LETTERS = 1000, 5000  # MLflow's limits of a request and of a tag


class MlflowSink(MetricSink):
    """Scalars as metrics, findings and the verdict as tags, the peak as a metric.

    They go to ``run_id`` if it is given (for programs that use a client), to the active run, or to ``MLFLOW_RUN_ID``.
    """

    name = "mlflow"

    def __init__(self, run_id: str | None = None) -> None:
        self._given = run_id

    def join(self) -> bool:
        """Whether a run is active in this thread: MLflow keeps them by thread."""
        active = mlflow.active_run()
        self._run_id = self._given or (active.info.run_id if active is not None else MLFLOW_RUN_ID.get())
        return self._run_id is not None

    def open(self, run: RunInfo) -> None:  # noqa: D102
        self._client, self._is_own, self._last = mlflow.MlflowClient(), self._run_id is None, (0, 0)
        if self._is_own:
            with mlflow.start_run(run_name=run.label) as own:  # in the active experiment; active in this thread only
                self._run_id = own.info.run_id
            self._client.update_run(self._run_id, status="RUNNING")

    def log(self, points: Sequence[Point]) -> None:  # noqa: D102
        times = [(int(point.time * 1000), point.step) for point in points]
        pairs = zip(points, times, strict=True)
        found = [Metric(tag, value, *when) for point, when in pairs for tag, value in point.values.items()]
        for first in range(0, len(found), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=found[first : first + _MOST_METRICS])
        self._last = times[-1]

    def alert(self, finding: Finding) -> None:  # noqa: D102
        self._client.set_tag(self._run_id, f"tbmem.{finding.kind.value}", finding.message[:_MOST_LETTERS])

    def summarize(self, summary: Summary) -> None:  # noqa: D102
        texts = {tag: value for tag, value in summary.values.items() if isinstance(value, str)}
        tags = [RunTag(tag, value[:_MOST_LETTERS]) for tag, value in texts.items()]
        metrics = [Metric(tag, value, *self._last) for tag, value in summary.values.items() if tag not in texts]
        self._client.log_batch(self._run_id, metrics=metrics, tags=tags)

    def close(self) -> None:  # noqa: D102
        if self._is_own:
            self._client.set_terminated(self._run_id)
