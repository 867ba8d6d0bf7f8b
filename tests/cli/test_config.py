"""`tbmem config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbmem.cli.main import app
from tbmem.config import Config, load_config


def _run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["config", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_every_value_has_its_origin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given a file, a variable and an override
    file = tmp_path / "mine.yaml"
    file.write_text("profiling:\n  active: 5\n")
    monkeypatch.setenv("TBMEM_MONITOR_PEAKS", "run")

    # when the result is printed
    lines = [" ".join(line.split()) for line in _run("-c", str(file), "profiling.repeat=4").splitlines()]

    # then each value says where it came from
    assert f"active: 5 # {file}" in lines
    assert "peaks: run # TBMEM_MONITOR_PEAKS" in lines
    assert "repeat: 4 # override profiling.repeat=4" in lines
    assert "wait: 1 # default" in lines


def test_what_it_prints_is_a_config_file(tmp_path: Path) -> None:
    file = tmp_path / "printed.yaml"
    file.write_text(_run("run.name='a: b # c'", "run.ranks=all", "patterns.min_growth=4 MiB"))

    loaded = load_config(file)

    assert loaded == load_config(None, ["run.name='a: b # c'", "run.ranks=all", "patterns.min_growth=4 MiB"])
    file.write_text(_run())
    assert load_config(file) == Config()


def test_as_json() -> None:
    values = json.loads(_run("--json"))

    assert values["profiling.active"] == {"value": 3, "origin": "default"}
