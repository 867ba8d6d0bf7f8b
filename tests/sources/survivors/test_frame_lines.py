from __future__ import annotations

import json
import linecache
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import tbmem
import tbmem.demo.training
from tbmem.sources.survivors.frame_lines import Frame, OperatorCall, UserLines

SOURCE = """\
import torch

scale = torch.ones(3) * 2

class Model:
    @staticmethod
    def forward(x):
        y = x * 2
        z = (
            x
            * 3
        )
        w = torch.relu(z) * y
        return w + [a * 5 for a in w]

    def loop(self, xs):
        def inner(x):
            return x * 7
        for x in xs:
            first = x * 2
            print(first)
            second = x * 3 - x * 4
            print(second,
                  second * 5)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return path


def _read(path: Path, operator: str, inside: int, before: int = 0, after: int = 0, nth: int = 0) -> int:
    call = OperatorCall(operator, inside, before, after, nth)
    return UserLines().line(Frame(str(path), 0, "f", call)).line


def test_a_line_has_its_text_and_the_qualified_name_of_its_function(source: Path) -> None:
    line = UserLines().line(Frame(str(source), 18, "inner"))

    assert line.text == "return x * 7"
    assert line.function == "Model.loop.<locals>.inner"
    assert str(line) == "train.py:18  return x * 7"


def test_a_source_that_cannot_be_read_leaves_what_the_frame_knows(tmp_path: Path) -> None:
    line = UserLines().line(Frame(str(tmp_path / "gone.py"), 3, "step"))

    assert (line.line, line.function, line.text) == (3, "step", "")


def test_a_source_that_does_not_parse_still_has_its_text(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def step(:\n    x = 1\n")

    line = UserLines().line(Frame(str(path), 2, "step"))

    assert (line.function, line.text) == ("step", "x = 1")


def test_between_two_calls_of_one_line_the_operator_is_on_that_line(source: Path) -> None:
    assert _read(source, "aten::unheard_of", inside=6, before=13, after=13) == 13


def test_the_only_operator_of_its_kind_between_two_calls(source: Path) -> None:
    # x * 3 - x * 4, between print(first) and print(second)
    assert _read(source, "aten::sub", inside=16, before=21, after=23) == 22
    assert _read(source, "aten::add", inside=6, before=13) == 14


def test_the_nth_operator_of_its_kind(source: Path) -> None:
    # y = x * 2 and z = x * 3 come before the first call, torch.relu
    assert _read(source, "aten::mul", inside=6, after=13) == 8
    assert _read(source, "aten::mul", inside=6, after=13, nth=1) == 10


def test_an_argument_below_the_line_of_its_call(source: Path) -> None:
    # given that the call of print starts a line above its argument; two products come before it
    assert _read(source, "aten::mul", inside=16, before=21, after=23, nth=2) == 24


def test_in_a_loop_the_call_before_may_stand_below(source: Path) -> None:
    # given the first product of the second turn: the last call was print(second), the next is print(first)
    assert _read(source, "aten::mul", inside=19, before=23, after=21) == 20


def test_an_operator_of_the_module_itself(source: Path) -> None:
    assert _read(source, "aten::mul", inside=3) == 3


def test_an_operator_that_cannot_be_found_is_somewhere_in_its_function(source: Path) -> None:
    # given a function that begins with its decorator
    assert _read(source, "aten::matmul", inside=9) == 6
    assert _read(source, "aten::mul", inside=6, nth=9) == 6


def test_inner_functions_are_not_searched(source: Path) -> None:
    assert _read(source, "aten::mul", inside=16, before=0, after=21) == 20
    assert _read(source, "aten::mul", inside=18) == 18


@pytest.mark.parametrize(
    "foreign",
    [
        torch.nn.functional.__file__,
        json.__file__,
        pytest.__file__,
        tbmem.__file__,
        f"{sysconfig.get_path('purelib')}/anything.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        "<eval_with_key>.3",
        "subclass_codegen.py:codegen(compiled_function)",
        "torch/nn/modules/module.py",
    ],
)
def test_files_of_others_are_not_the_users(foreign: str) -> None:
    assert UserLines().file(foreign) == ""


def test_the_demonstrations_training_is_a_users_like_any_other() -> None:
    assert UserLines().file(tbmem.demo.training.__file__) == tbmem.demo.training.__file__


def test_what_the_compiler_writes_is_not_the_users(tmp_path: Path) -> None:
    path = tmp_path / "torchinductor_me" / "ab" / "cab.py"
    path.parent.mkdir(parents=True)
    path.touch()

    assert UserLines().file(str(path)) == ""


def test_a_path_that_torch_has_made_shorter_is_found_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(source.parent)])

    assert UserLines().file("train.py") == str(source)


def test_of_two_files_of_a_name_the_loaded_one_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a folder on the path with a file of the same name as this test's
    rival = tmp_path / Path(__file__).name
    rival.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(Path(__file__).parent), *sys.path])

    assert UserLines().file(Path(__file__).name) == __file__


def test_a_cell_of_a_notebook_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a notebook, which tells linecache of its cells and writes no file
    name = "/nowhere/ipykernel_7/1234.py"
    monkeypatch.setitem(linecache.cache, name, (6, None, ["x = 1\n"], name))

    assert UserLines().file(name) == name
    assert UserLines().line(Frame(name, 1, "<module>")).text == "x = 1"
