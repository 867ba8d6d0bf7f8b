"""torch's own lines stay away from the user's console, and torch is left as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch.distributed as dist

from tbmem.sources.torch_state.profiler_state import QuietTorch, _c10_level, let_collectives_settle, quiet_kineto


def test_the_level_is_back_afterwards() -> None:
    level = _c10_level()
    if level is None:
        pytest.skip("this build of torch does not export its log level")
    before = level.value
    quiet = QuietTorch()

    quiet.begin()
    assert level.value == 2
    quiet.begin()
    quiet.end()
    quiet.end()

    assert level.value == before


def test_a_level_that_the_user_chose_for_kineto_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    with quiet_kineto():
        assert os.environ["KINETO_LOG_LEVEL"] == "0"
    assert os.environ["KINETO_LOG_LEVEL"] == "0"


def test_kinetos_variable_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    with quiet_kineto():
        assert "KINETO_LOG_LEVEL" in os.environ
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_collectives_settle_only_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a clock that notes how long is waited
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)

    # when no process group is there, and when one is
    let_collectives_settle()
    without = list(waited)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        waited.clear()
        let_collectives_settle()
    finally:
        dist.destroy_process_group()

    # then only the second waits: nobody else pays for torch's crash
    assert without == []
    assert waited == [0.005]
