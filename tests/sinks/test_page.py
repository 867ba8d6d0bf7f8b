"""The code of docs/loggers.md runs, each logger's with the lines that all share."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tbmem.config import load_config
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs/loggers.md").read_text()
SHARED, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
NEEDS = ("wandb", "mlflow", "comet_ml", "prometheus_client", "opentelemetry.sdk", "json")
PRINTED = (r"stable|short_run|growing|warmup", r"stable|short_run|growing|warmup", "", "", "True", r"50 \d")
CASES = list(zip(NEEDS, EXAMPLES, PRINTED, strict=True))
OFFLINE = {
    "WANDB_MODE": "offline",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_TRACKING_URI": "file:mlruns",
}


def test_the_section_is_valid() -> None:
    (section,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)

    assert load_config(yaml.safe_load(section)).output.sinks == ("wandb", "prometheus:9464")
    assert load_config(None, ["output.sinks=wandb,mlflow"]).output.sinks == ("wandb", "mlflow")


@pytest.mark.slow
@pytest.mark.parametrize(("needed", "code", "printed"), CASES, ids=NEEDS)
def test_the_example(needed: str, code: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install --group loggers")
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "page.py").write_text(f"{SHARED}\n{code.replace('9464', str(port))}")
    # when
    command = [sys.executable, "page.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    # then
    assert done.returncode == 0, done.stderr
    assert " is off: " not in done.stderr
    assert re.search(printed, done.stdout)
