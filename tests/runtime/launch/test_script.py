"""Programs as a command line names them, run in this process: what ``tests/cli/test_run.py`` compares with Python."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.runtime.launch.script import Program


@pytest.fixture(autouse=True)
def python_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of the program's own, and a Python that is the same afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tbmem"])
    monkeypatch.setattr(sys, "path", ["where tbmem lies", *sys.path])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def _ignore(error: BaseException) -> None:
    pass


def _main() -> Any:
    """The variables of the program that ran."""
    return SimpleNamespace(**vars(sys.modules["__main__"]))


SEES = "import sys\nargv, path, name = list(sys.argv), sys.path[0], __name__\n"


def test_a_script_is_main_with_its_own_arguments_and_folder(tmp_path: Path) -> None:
    # given a script in a folder, and a link to it elsewhere
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(SEES)
    (tmp_path / "link.py").symlink_to(tmp_path / "code/train.py")
    # when
    Program.find(["link.py", "--lr", "3"]).run(_ignore)
    # then imports come from where the script really is
    seen = _main()
    assert (seen.argv, seen.name) == (["link.py", "--lr", "3"], "__main__")
    assert seen.path == os.path.realpath(tmp_path / "code")
    assert (seen.__file__, seen.__package__) == (str(tmp_path / "link.py"), None)
    assert "where tbmem lies" not in sys.path


@pytest.mark.parametrize("kind", ["module", "package"])
def test_a_module_is_found_from_the_current_folder(tmp_path: Path, kind: str) -> None:
    # given
    path = tmp_path / ("tbmem_trial.py" if kind == "module" else "tbmem_trial/__main__.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(SEES)
    # when
    Program.find(["-m", "tbmem_trial", "x"]).run(_ignore)
    # then
    seen = _main()
    assert (seen.argv, seen.name) == ([str(path), "x"], "__main__")
    assert seen.path == str(tmp_path)
    assert seen.__spec__.name == ("tbmem_trial" if kind == "module" else "tbmem_trial.__main__")
    assert seen.__package__ == ("" if kind == "module" else "tbmem_trial")


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_folder_and_an_archive_run_their_main(tmp_path: Path, kind: str) -> None:
    # given
    path = tmp_path / "program"
    if kind == "folder":
        path.mkdir()
        (path / "__main__.py").write_text(SEES)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__main__.py", SEES)
    # when
    Program.find(["program"]).run(_ignore)
    # then
    seen = _main()
    assert (seen.argv, seen.path) == (["program"], str(path))
    assert seen.__file__ == str(path / "__main__.py")


def test_a_script_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(buffer=io.BytesIO(SEES.encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", source)

    Program.find(["-", "x"]).run(_ignore)

    seen = _main()
    assert (seen.argv, seen.path, seen.__file__) == (["-", "x"], "", "<stdin>")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.py"], "gone.py: no such script"),
        (["-c", "print()"], "-c: only a script in a file"),
        (["-m"], "-m needs a module's name"),
        (["-m", "tbmem_gone.train"], "tbmem_gone.train: no module of this name"),
        (["-m", "sys"], "sys: no module of this name"),
        (["-m", "_ctypes"], "_ctypes: no module of this name"),
        (["empty"], "empty: a folder without __main__.py"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(UsageError, match=message) as caught:
        Program.find(words)
    assert "\n" not in str(caught.value)


def test_an_error_is_passed_on_with_the_programs_frames_alone(tmp_path: Path) -> None:
    # given a hook that prints, and a program that fails in a function of its own
    (tmp_path / "train.py").write_text("def step():\n    raise KeyError('mine')\nstep()\n")
    printed: list[list[str]] = []

    def hook(kind: object, value: BaseException, traceback: Any) -> None:
        names = []
        while traceback is not None:
            names.append(traceback.tb_frame.f_code.co_name)
            traceback = traceback.tb_next
        printed.append(names)

    sys.excepthook = hook
    told: list[BaseException] = []
    # when
    with pytest.raises(KeyError, match="mine") as caught:
        Program.find(["train.py"]).run(told.append)
    sys.excepthook(KeyError, caught.value, caught.value.__traceback__)
    # then
    assert told == [caught.value]
    assert printed == [["<module>", "step"]]


def test_the_programs_own_end_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    told: list[BaseException] = []

    with pytest.raises(SystemExit) as caught:
        Program.find(["train.py"]).run(told.append)
    assert (caught.value.code, told) == (3, [])
