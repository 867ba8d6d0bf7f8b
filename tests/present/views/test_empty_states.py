"""What a screen without data advises can be done."""

from __future__ import annotations

from pathlib import Path

import typer

import tbmem
from tbmem.cli.main import app
from tbmem.config.load import load_config
from tbmem.present.views import empty_states
from tbmem.present.views.run_schema import Empty

STATES: list[Empty] = [getattr(empty_states, name) for name in vars(empty_states) if name.isupper() and name[0] != "_"]


def test_commands_exist() -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    lines = [line.split() for state in STATES for line in state["commands"] if line.startswith("tbmem ")]

    assert lines
    assert {words[1] for words in lines} <= known


def test_code_and_names_exist() -> None:
    code = "\n".join(line for line in empty_states.NO_LOG["commands"])

    compile(code, "shown", "exec")
    assert {"MemoryCallback", "record"} <= set(dir(tbmem))


def test_settings_exist(tmp_path: Path) -> None:
    shown = [*empty_states.NO_RECORDINGS["commands"], *empty_states.NO_SEGMENTS["commands"][:2]]
    (tmp_path / "x.yaml").write_text("\n".join(shown))

    config = load_config(tmp_path / "x.yaml")

    assert config.profiling.enabled
    assert config.snapshot.enabled


def test_every_state_has_words() -> None:
    assert len(STATES) == 12
    for state in STATES:
        assert state["title"]
        assert state["text"].endswith(".")
