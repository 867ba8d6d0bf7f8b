"""torch's own lines stay away from the user's console, and torch is left as it was."""

from __future__ import annotations

import os

import pytest

from tbmem.sources.quiet import QuietTorch, _c10_level, quiet_kineto


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
