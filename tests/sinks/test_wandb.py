"""The file of an offline run of wandb has what the sink has logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.sinks.conftest import LEAK, PEAK, STEPS, Logged
from tests.sinks.offline_run import alerts, history, is_complete, summary

wandb: Any = pytest.importorskip("wandb", reason="wandb is not installed: pip install --group loggers")
from tbmem.sinks.wandb import WandbSink  # noqa: E402  (only where it is installed)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.fixture(autouse=True, scope="module")
def no_service_is_left() -> Iterator[None]:
    yield
    wandb.teardown()


def _file(folder: Path) -> Path:
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert wait_until(lambda: is_complete(path))
    return path


def _points(rows: list[dict[str, Any]], tag: str) -> dict[int, float]:
    return {row["memory/step"]: row[tag] for row in rows if tag in row}


def test_a_run_without_rows_has_the_scalars_of_tensorboard_and_goes_on(logged: Logged, tmp_path: Path) -> None:
    # given
    run = wandb.init(project="mine", dir=tmp_path)
    # when
    points = logged(WandbSink())
    # then
    assert wandb.run is run
    run.log({"loss": 1.0})
    run.finish()
    rows = history(_file(tmp_path))
    assert {tag: _points(rows, tag) for tag in points} == points
    assert rows[-1]["loss"] == 1.0
    assert summary(_file(tmp_path)).items() >= {"memory/verdict": "leak", "memory/peak": PEAK}.items()
    assert alerts(_file(tmp_path)) == [("LEAK on cuda:0", LEAK.message, "ERROR")]


def test_what_the_program_logs_with_steps_of_its_own_is_not_refused(logged: Logged, tmp_path: Path) -> None:
    # given a program that logs once per epoch
    run = wandb.init(project="mine", dir=tmp_path)
    run.log({"loss": 0.0}, step=0)
    # when
    logged(WandbSink(), during=lambda: run.log({"loss": 1.0}, step=1))
    run.log({"loss": 2.0}, step=2)
    run.finish()
    # then
    rows = history(_file(tmp_path))
    assert [row["loss"] for row in rows if "loss" in row] == [0.0, 1.0, 2.0]
    # and the points have joined its rows
    assert [row["_step"] for row in rows] == [0, 1, 2]
    assert rows[1]["memory/step"] == STEPS[-1]


def test_without_a_run_there_is_one_of_its_own(logged: Logged, tmp_path: Path) -> None:
    # when
    points = logged(WandbSink())
    # then
    assert wandb.run is None
    rows = history(_file(tmp_path))
    assert {tag: _points(rows, tag) for tag in points} == points
    assert [row["_step"] for row in rows] == list(STEPS)
    assert summary(_file(tmp_path))["memory/verdict"] == "leak"
