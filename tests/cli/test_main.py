"""Exit codes and one-line errors of the command line, as a shell sees them."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tbmem
from tbmem.cli.entry import main
from tbmem.cli.main import COMMANDS


def _tbmem(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tbmem", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


def test_version() -> None:
    assert _tbmem("--version").stdout.strip() == f"tbmem {tbmem.__version__}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "profiling.actve=3"], "profiling.actve: unknown key; did you mean profiling.active?"),
        (["config", "profiling.active=many"], "profiling.active: must be a whole number (got 'many')"),
        (["config", "profiling.active=0"], "profiling.active must be at least 1"),
        (["config", "active"], "an override is written key=value"),
        (["config", "-c", "nowhere.yaml"], "nowhere.yaml: no such config file"),
        (["demo", "-c", "nowhere.yaml"], "nowhere.yaml: no such config file"),
        (["demo", "profiling.active=0"], "profiling.active must be at least 1"),
        (["demo", "--logdir", "a-file/runs"], "/a-file/runs"),
        (["demo", "--device", "cuda:77"], "--device cuda:77: cannot be used here"),
        (["demo", "--device", "toaster"], "--device toaster: cannot be used here"),
        (["demo", "monitor.devices=cuda:77"], "monitor.devices: no device 'cuda:77' here"),
        (["demo", "--nonsense"], "No such option: --nonsense"),
        (["demo", "--steps", "many"], "--steps"),
        (["demo", "--inject", "x"], "--inject"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "a-file").touch()

    done = _tbmem(*arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    named = f"tbmem {arguments[0]}" if arguments[0] in COMMANDS else "tbmem"
    assert done.stderr.startswith(f"{named}: ")
    assert message in done.stderr


@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_a_wrong_option_names_the_command_and_its_help(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    named = f"tbmem {command}".strip()
    monkeypatch.setattr(sys, "argv", [*named.split(), "--nonsense"])
    # when
    with pytest.raises(SystemExit) as ended:
        main()
    # then
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{named}: No such option: --nonsense")
    assert message.endswith(f". Try '{named} --help'\n")


def test_without_a_command_there_is_help() -> None:
    done = _tbmem()

    assert done.returncode == 0
    assert "demo" in done.stdout


@pytest.mark.slow
def test_an_interrupt_is_one_word_and_exit_130(tmp_path: Path) -> None:
    # given a demo that trains
    command = [sys.executable, "-m", "tbmem", "demo", "--logdir", str(tmp_path), "--steps", "100000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "recording" in line:
                break
        # when
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=120)
    # then the run is summed up all the same
    assert demo.returncode == 130
    assert err.splitlines()[-1] == "tbmem: interrupted"
    assert "ended by KeyboardInterrupt" in err
    assert "Traceback" not in err


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for name, summary in COMMANDS.items():
        module = import_module(f"tbmem.cli.{name}")
        assert " ".join(str(module.command.__doc__).split("\n\n")[0].split()) == summary
