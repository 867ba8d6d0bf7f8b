"""MLflow's own client reads back what the sink has logged to a file store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sinks.conftest import LEAK, PEAK, Logged

mlflow: Any = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install --group loggers")
from tbmem.sinks.mlflow import MlflowSink  # noqa: E402  (only where it is installed)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")


def _metrics(run_id: str, tags: list[str]) -> dict[str, dict[int, float]]:
    client = mlflow.MlflowClient()
    return {tag: {metric.step: metric.value for metric in client.get_metric_history(run_id, tag)} for tag in tags}


def test_the_programs_run_has_the_scalars_of_tensorboard_and_goes_on(logged: Logged) -> None:
    # given
    with mlflow.start_run() as run:
        # when
        points = logged(MlflowSink())
        # then
        assert mlflow.active_run() is not None
        mlflow.log_metric("loss", 1.0)
        assert mlflow.MlflowClient().get_run(run.info.run_id).info.status == "RUNNING"
    assert _metrics(run.info.run_id, list(points)) == points
    data = mlflow.MlflowClient().get_run(run.info.run_id).data
    assert data.metrics["memory/peak"] == PEAK
    assert data.tags["memory/verdict"] == "leak"
    assert data.tags["tbmem.leak"] == LEAK.message


def test_a_run_that_has_ended_still_gets_the_summary(logged: Logged) -> None:
    # given
    run = mlflow.start_run()
    # when
    logged(MlflowSink(), during=mlflow.end_run)
    # then
    ended = mlflow.MlflowClient().get_run(run.info.run_id)
    assert (ended.info.status, ended.data.tags["memory/verdict"]) == ("FINISHED", "leak")


def test_without_a_run_there_is_one_of_its_own(logged: Logged, tmp_path: Path) -> None:
    # when
    points = logged(MlflowSink(), rank=1)
    # then
    (run,) = mlflow.MlflowClient().search_runs(["0"])
    assert (run.info.run_name, run.info.status) == (f"{tmp_path.name}-rank1", "FINISHED")
    tags = [f"rank1/{tag}" for tag in points]
    assert list(_metrics(run.info.run_id, tags).values()) == list(points.values())
    assert mlflow.active_run() is None
