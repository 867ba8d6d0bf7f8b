"""A job that takes too long ends with the line that it is at; generate() as soon as its speed is known."""

from __future__ import annotations

import signal
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from tbmem.estimator.refusals import REHEARSE, explain
from tbmem.estimator.time_limit import TimeLimitError, _Generation, time_limit
from tbmem.model.job import Job


def seconds_left(progress: _Generation, tokens: int, now: float) -> float:
    """As if it were called from the loop of generate()."""
    input_ids, stopping_criteria = torch.zeros(2, tokens), SimpleNamespace(max_length=1000)
    assert (input_ids.shape, stopping_criteria.max_length) == ((2, tokens), 1000)
    return progress.seconds_left(sys._getframe(), now)


def test_an_endless_step_is_named_with_its_line_and_what_to_do() -> None:
    def step() -> None:
        while True:
            try:
                time.sleep(0.001)
            except Exception:
                continue

    with pytest.raises(TimeLimitError) as raised, time_limit(600, time.monotonic() + 0.05):
        step()

    line = explain(Job(model="train.py:make"), raised.value)
    assert line.startswith("--model train.py:make: test_time_limit.py:")
    assert "not done after 600 s" in line
    assert REHEARSE in line
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_job_is_not_begun_after_the_deadline() -> None:
    with pytest.raises(TimeLimitError), time_limit(600, time.monotonic() - 1):
        pytest.fail("the job was begun")


def test_generate_is_judged_by_its_speed() -> None:
    # given a loop that makes 10 tokens in 20 seconds
    progress = _Generation()
    assert seconds_left(progress, 100, now=0.0) == 0.0

    # then the 890 that are missing take 1,780 seconds
    assert seconds_left(progress, 110, now=20.0) == pytest.approx(1780)
    assert progress.total == 1000

    # and another generate() is judged anew
    assert seconds_left(progress, 100, now=30.0) == 0.0


def test_code_without_generate_has_no_speed() -> None:
    assert _Generation().seconds_left(sys._getframe(), now=1.0) == 0.0
