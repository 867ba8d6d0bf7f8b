"""Lines that add to a name, read from a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tbmem.sources.program.syntax import Handle, SourceCode, called, creates_graph

SOURCE = """\
import functools
import itertools
import torch

cache = {}


class Tracker:
    def __init__(self):
        self.history = []
        self.total = 0

    def log(self, key, value):
        if value is not None:
            self.history.append(
                value
            )
        self.by_key.setdefault(key, []).append(value)
        self.total += value


def train(model, loader):
    losses = []
    state = {"h": None, "kept": []}
    batches = itertools.cycle(loader)
    for batch in batches:
        loss = model(batch)
        losses.append(loss)
        state["h"] = model(state["h"])
        state["kept"].append(loss)
        state["other"].append(loss)
        seen = torch.cat([seen, loss])
        h, c = model(batch, (h, c))
        queue.put(loss)
        record(pile, loss)
        heapq.heappush(heap, loss)
        loss.backward(create_graph=True)


def other():
    losses = []
    losses.append(1)


def make():
    states = {}

    def step(i):
        states[i] = 1

    return step


@functools.lru_cache(
    maxsize=None
)
def mask_for(n):
    return n
"""
LINES = SOURCE.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


def number(text: str, start: int = 0) -> int:
    return next(i + 1 for i, line in enumerate(LINES) if text in line and i >= start)


TRAIN = number("def train")
KEYS = Handle("state", path=(("key", "kept"),), function_line=TRAIN)


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        (Handle("losses", function_line=TRAIN), "losses.append(loss)"),
        (Handle("history", is_attribute=True), "self.history.append("),
        (Handle("by_key", is_attribute=True, path=(("key", "acc"),)), "self.by_key.setdefault(key, []).append(value)"),
        (KEYS, 'state["kept"].append(loss)'),
        (Handle("states", function_line=number("def make")), "states[i] = 1"),
        (Handle("queue", path=(("attr", "queue"),)), "queue.put(loss)"),
        (Handle("pile"), "record(pile, loss)"),
        (Handle("heap"), "heapq.heappush(heap, loss)"),
        (Handle("total", is_attribute=True), "self.total += value"),
    ],
)
def test_the_line_that_adds_is_read(path: str, handle: Handle, text: str) -> None:
    found = SourceCode().adding_lines(replace(handle, files=(path,)))

    assert [line.text for line in found] == [text]
    assert found[0].line == number(text)
    assert found[0].file == path


def test_a_buffer_is_filled_where_it_is_given_away_not_where_it_is_read(tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text("buffer = BytesIO()\nbuffer.seek(0)\ntorch.save(state, buffer)\nsend(buffer.getvalue())\n")
    # when
    found = SourceCode().filling_lines(Handle("buffer", files=(str(script),)))
    # then
    assert [line.text for line in found] == ["torch.save(state, buffer)"]


def test_only_the_function_in_which_a_variable_lives_is_searched(path: str) -> None:
    handle = Handle("losses", files=(path,), function_line=number("def other"))

    found = SourceCode().adding_lines(handle)

    assert [(line.text, line.function) for line in found] == [("losses.append(1)", "other")]


HIDING = """\
def forward(x):
    return relu(x)


def local():
    x = []
    x.append(1)


def given(x):
    x.append(2)


def global_():
    global x
    x = [3]


y = [relu(x) for x in batches]
"""


@pytest.mark.parametrize(
    ("text", "adding", "assigning"),
    [
        ("x = [1]\n", ["x.append(2)"], ["x = [1]", "x = [3]"]),
        ("x = [1]\nx.append(4)\n", ["x.append(4)", "x.append(2)"], ["x = [1]", "x = [3]"]),
    ],
)
def test_a_variable_of_a_module_is_not_a_functions_own_of_that_name(
    tmp_path: Path, text: str, adding: list[str], assigning: list[str]
) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(text + HIDING)
    handle, sources = Handle("x", files=(str(script),)), SourceCode()
    # then
    assert [line.text for line in sources.adding_lines(handle)] == adding
    assert [line.text for line, _ in sources.assignments(handle)] == assigning


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def forward(x):\n    return relu(x)\n", []),  # another one of that name
        ("def forward():\n    x = []\n    x.append(1)\n", []),
        ("x = linspace(0, 1)\nplot(x)\n", []),
        ("def keep(x, loss):\n    x.append(loss)\n", ["x.append(loss)"]),  # may have been given it
        ("from train import x\n\ndef keep(loss):\n    x.append(loss)\n", ["x.append(loss)"]),
        ("from train import y as x\nplot(x)\n", ["plot(x)"]),
    ],
)
def test_of_another_file_only_what_may_be_the_same_variable_is_read(
    tmp_path: Path, text: str, found: list[str]
) -> None:
    # given
    own, other = tmp_path / "train.py", tmp_path / "common.py"
    own.write_text("x = []\n")
    other.write_text(text)
    # then
    assert [line.text for line in SourceCode().adding_lines(Handle("x", files=(str(own),)), [str(other)])] == found


@pytest.mark.parametrize(
    ("handle", "text", "is_cumulative"),
    [
        (Handle("seen"), "seen = torch.cat([seen, loss])", True),
        (Handle("h"), "h, c = model(batch, (h, c))", True),
        (Handle("state", path=(("key", "h"),)), 'state["h"] = model(state["h"])', True),
        (Handle("batches"), "batches = itertools.cycle(loader)", False),
        (Handle("total", is_attribute=True), "self.total += value", True),
    ],
)
def test_an_assignment_tells_whether_the_old_value_is_in_it(
    path: str, handle: Handle, text: str, is_cumulative: bool
) -> None:
    handle = replace(handle, files=(path,), function_line=0 if handle.is_attribute else TRAIN)

    found = {line.text: cumulative for line, cumulative in SourceCode().assignments(handle)}

    assert found[text] is is_cumulative


def test_a_statement_over_several_lines_is_its_first(path: str) -> None:
    line = SourceCode().code_line(path, number("                value"))

    assert line.text == "self.history.append("
    assert line.function == "Tracker.log"


def test_a_line_in_the_head_of_a_loop_is_the_loop(path: str) -> None:
    assert SourceCode().code_line(path, number("for batch in")).text == "for batch in batches:"


def test_a_closures_variable_lives_in_the_function_around(path: str) -> None:
    sources = SourceCode()

    found = sources.binding_function(path, number("def step(i)"), "step", "states")

    assert found == ("make", number("def make"))


def test_a_function_is_found_by_its_decorator(path: str) -> None:
    found = SourceCode().file(path).function_from(number("@functools"), "mask_for")

    assert found is not None
    assert found[0] == "mask_for"


def test_calls_are_found_by_what_they_say(path: str) -> None:
    sources = SourceCode()

    assert [line.text for line in sources.calls([path], creates_graph)] == ["loss.backward(create_graph=True)"]
    assert [line.text for line in sources.calls([path], lambda call: called(call) == "cycle")] == [
        "batches = itertools.cycle(loader)"
    ]
    assert [line.line for line in sources.attribute_lines([path], ["total"])] == [
        number("self.total = 0"),
        number("self.total +="),
    ]


def test_a_source_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    sources = SourceCode()

    for name in (str(broken), str(tmp_path / "absent.py"), "<string>", ""):
        assert sources.adding_lines(Handle("x", files=(name,))) == []
        assert sources.code_line(name, 3).line == 3
