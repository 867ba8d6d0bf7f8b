"""Bounds that a user's own code keeps, read from it."""

from __future__ import annotations

import collections
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tbmem.sources.program.syntax import Handle, SourceCode
from tbmem.sources.retainers.length_bounds import written_bound
from tbmem.sources.retainers.reachability import Reference, ReferenceKind, RootScope

KEEPER = """
LIMIT = 30

class Keeper:
    most = 70

    def __init__(self, size):
        self.size = size
        self.kept = {kept}
        self.at = 0

    def push(self, x):
        {push}

    def sample(self, n):
        return sorted(self.kept)[:n]
"""


def _bound(folder: Path, push: str, kept: Any) -> int | None:
    """The bound of a ``Keeper(40).kept`` with such a ``push``."""
    path = folder / "keeper.py"
    body = push.replace("\n", "\n        ")
    path.write_text(KEEPER.replace("{kept}", "[]").replace("{push}", body))
    module = _load(path)
    keeper = module.Keeper(40)
    keeper.kept = kept
    owner = Reference(keeper, RootScope(), ReferenceKind.LOCAL, "keeper")
    reference = Reference(kept, owner, ReferenceKind.ATTRIBUTE, "kept")
    return written_bound(reference, Handle("kept", True, (), (str(path),)), SourceCode())


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("push", "bound"),
    [
        ("if len(self.kept) < self.size:\n    self.kept.append(None)\nself.kept[self.at] = x", 40),
        ("if len(self.kept) < 50:\n    self.kept.append(x)\nelse:\n    self.kept[self.at] = x", 50),
        ("if len(self.kept) >= self.size:\n    self.kept[self.at] = x\nelse:\n    self.kept.append(x)", 40),
        ("self.kept.append(x)\nif len(self.kept) > self.most:\n    self.kept.pop(0)", 70),
        ("self.kept.append(x)\nwhile self.size < len(self.kept):\n    del self.kept[0]", 40),
        ("if len(self.kept) == self.size:\n    self.kept.clear()\nself.kept.append(x)", 40),
        ("self.kept.append(x)\nif len(self.kept) > self.size:\n    self.kept = self.kept[-20:]", 40),
    ],
)
def test_a_length_that_the_code_checks_is_a_bound(tmp_path: Path, push: str, bound: int) -> None:
    assert _bound(tmp_path, push, [1, 2, 3]) == bound


@pytest.mark.parametrize(
    "push",
    [
        "self.kept.append(x)",
        # nothing is taken out
        "self.kept.append(x)\nif len(self.kept) > self.size:\n    print(self.kept)",
        # bounded here, but not there
        "if len(self.kept) < self.size:\n    self.kept.append(x)\nself.kept.append(x)",
        # the longer it is, the more is added
        "if len(self.kept) > self.size:\n    self.kept.append(x)",
        # a number that nobody knows
        "if len(self.kept) < self.unknown():\n    self.kept.append(x)",
        "if len(self.kept) < x.size:\n    self.kept.append(x)",
        # another one's length
        "if len(x) < self.size:\n    self.kept.append(x)",
        # it has outgrown the number: that bounds something else
        "self.kept.append(x)\nif len(self.kept) > 2:\n    self.kept.pop()",
    ],
)
def test_what_does_not_keep_it_short_is_none(tmp_path: Path, push: str) -> None:
    assert _bound(tmp_path, push, [1, 2, 3]) is None


_PUT = "self.kept[x] = x"
_PUT_AND_DROP = "self.kept[x] = x\nif len(self.kept) > self.size:\n    self.kept.popitem()"


@pytest.mark.parametrize(("push", "bound"), [(_PUT, None), (_PUT_AND_DROP, 40)])
def test_an_element_that_is_set_makes_a_dict_longer(tmp_path: Path, push: str, bound: int | None) -> None:
    assert _bound(tmp_path, push, collections.OrderedDict(a=1)) == bound


def test_a_bound_in_a_closures_variable_is_known(tmp_path: Path) -> None:
    # given
    path = tmp_path / "closure.py"
    lines = ["def make(size):", "    kept = []", "    def step(x):", "        if len(kept) < size:"]
    path.write_text("\n".join([*lines, "            kept.append(x)", "    return step", ""]))
    step = _load(path).make(25)
    kept = step.__closure__[0].cell_contents
    reference = Reference(kept, Reference(step, RootScope(), ReferenceKind.LOCAL, "step"), ReferenceKind.CLOSED, "kept")
    # when / then
    assert written_bound(reference, Handle("kept", files=(str(path),), function_line=1), SourceCode()) == 25
