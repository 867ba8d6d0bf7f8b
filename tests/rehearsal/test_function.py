"""A function of this process is called in another one."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tbmem.errors import UsageError
from tbmem.rehearsal.function import main, name_of, written_call
from tests.conftest import PROJECT


def test_a_local_function_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a function that no other process could import
    monkeypatch.chdir(tmp_path)
    power = 3

    def write(name: str, batch_size: int = 1, word: str = "") -> None:
        Path(name).write_text(f"{batch_size**power} {word}")

    # when it is called by another process, one argument on the command line
    with written_call(write, ["out.txt"], {"word": "mine", "batch_size": 9}) as words:
        command = [sys.executable, *words, "batch_size=2"]
        subprocess.run(command, check=True, cwd=PROJECT, timeout=60)
        file = Path(words[-1])

    # then it ran in this folder, and nothing is left
    assert (tmp_path / "out.txt").read_text() == "8 mine"
    assert not file.exists()


def test_what_cannot_be_handed_over_is_one_line() -> None:
    lock = threading.Lock()

    with pytest.raises(UsageError, match=r"^<lambda>|lambda: cannot be handed over to a process of its own \("):
        written_call(lambda: lock, [], {}).__enter__()


def test_the_file_is_called_in_this_process_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with written_call(print, ["a"], {"sep": "-"}) as words:
        main(words[2:])

    assert capsys.readouterr().out == "a\n"
    assert name_of(lambda: None) == "lambda"
