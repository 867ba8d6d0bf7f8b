"""`tbmem demo` as a newcomer runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.json_output import validate


def _demo(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "-m", "tbmem", "demo", "--logdir", str(tmp_path), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    validate("demo", result)
    return result, done.stderr


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    # when the demo has run
    result, shown = _demo(tmp_path)

    # then its result names what was judged and written
    assert result["verdicts"] == {"cpu": "stable"}
    assert result["peak"]["cpu"]["bytes"] > 0
    assert len(result["traces"]) == 2
    assert all(Path(trace).is_file() for trace in result["traces"])
    assert Path(result["monitor_log"]).is_file()
    assert result["findings"] == []
    assert result["steps"] == 60
    # and the console tells states, memory, verdict and the line to paste
    for words in ("steps 2-3 warm-up", "steps 10-12 recording", "0 · CPU memory · allocated", "verdict CPU: STABLE"):
        assert words in shown
    assert f"tensorboard --logdir {tmp_path}" in shown


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["leak", "spike"])
def test_a_fault_is_found(tmp_path: Path, fault: str) -> None:
    result, shown = _demo(tmp_path, "--inject", fault)

    assert result["verdicts"] == {"cpu": fault}
    assert {finding["kind"] for finding in result["findings"]} == {fault}
    assert f"{fault.upper()}  CPU" in shown


@pytest.mark.slow
def test_switched_off(tmp_path: Path) -> None:
    result, shown = _demo(tmp_path, "--steps", "2", "enabled=false")

    assert result is None
    assert shown.strip() == ""
    assert list(tmp_path.iterdir()) == []
