"""Advice that names settings: they do what they are named for."""

from __future__ import annotations

import pytest

from tbmem.analysis.diagnosis.advice import recording_of
from tbmem.config import load_config
from tbmem.runtime.profiling.schedule import ScheduleState, schedule_at


@pytest.mark.parametrize("step", [1, 2, 3, 45])
def test_another_run_records_the_step_first(step: int) -> None:
    config = load_config(None, recording_of(step).split()).profiling
    states = [schedule_at(each, config).state for each in range(1, step + 1)]
    assert states.index(ScheduleState.ACTIVE) == step - 1
