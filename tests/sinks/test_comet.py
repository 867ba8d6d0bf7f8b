"""The archive of an offline experiment of Comet has what the sink has logged."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.conftest import LEAK, PEAK, Logged

comet_ml: Any = pytest.importorskip("comet_ml", reason="comet_ml is not installed: pip install --group loggers")
from tbmem.sinks.comet import _SILENT, CometSink  # noqa: E402  (only where it is installed)


def _messages(folder: Path) -> list[dict[str, Any]]:
    (archive,) = folder.glob("*.zip")
    with zipfile.ZipFile(archive) as opened:
        return [json.loads(line) for line in opened.read("messages.json").splitlines()]


def _metrics(messages: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for message in messages:
        if message["type"] == "metric_msg":
            metric = message["payload"]["metric"]
            found.setdefault(metric["metricName"], {})[metric["step"]] = float(metric["metricValue"])
    return found


def test_the_programs_experiment_has_the_scalars_of_tensorboard_and_goes_on(logged: Logged, tmp_path: Path) -> None:
    # given
    experiment = comet_ml.OfflineExperiment(offline_directory=str(tmp_path), **_SILENT)
    # when
    points = logged(CometSink())
    # then
    assert comet_ml.get_running_experiment() is experiment
    experiment.log_metric("loss", 1.0)
    experiment.end()
    messages = _messages(tmp_path)
    metrics = _metrics(messages)
    assert {tag: metrics[tag] for tag in points} == points
    # and what it logs without a step has none of tbmem's
    assert list(metrics["loss"]) == [None]
    assert LEAK.message in json.dumps(messages)


def test_without_an_experiment_there_is_one_of_its_own(logged: Logged, tmp_path: Path) -> None:
    # when
    points = logged(CometSink())
    # then
    messages = _messages(tmp_path)
    metrics = _metrics(messages)
    assert {tag: metrics[tag] for tag in points} == points
    others = {m["payload"]["key"]: m["payload"]["value"] for m in messages if m["type"] == "log_other"}
    assert float(others["memory/peak"]) == PEAK
    assert others["memory/verdict"] == "leak"
