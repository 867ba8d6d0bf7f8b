"""Whose code is whose, and reading variables without leaving any behind."""

from __future__ import annotations

import collections
import json
import sys
import weakref
from pathlib import Path

import pytest
import torch

import tbmem.demo.training
import tbmem.sources.program.introspection
from tbmem.sources.program import ownership as usercode


class Thing:
    pass


@pytest.mark.parametrize(
    ("filename", "is_users"),
    [
        (__file__, True),
        ("train.py", True),
        ("<ipython-input-3-abc>", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        (json.__file__, False),
        (torch.__file__, False),
        (pytest.__file__, False),
        (tbmem.sources.program.introspection.__file__, False),
        (tbmem.demo.training.__file__, True),
    ],
)
def test_whose_file(filename: str, is_users: bool) -> None:
    assert usercode.is_user_file(filename) is is_users


@pytest.mark.parametrize(
    ("kind", "is_users"),
    [(Thing, True), (list, False), (collections.Counter, False), (torch.nn.Linear, False), (Path, False)],
)
def test_whose_class(kind: type, is_users: bool) -> None:
    assert usercode.is_user_class(kind) is is_users


def test_a_class_of_a_module_that_was_never_registered_is_known_by_its_methods() -> None:
    names: dict[str, type] = {}
    code = compile("class Late:\n    def run(self): pass\n", "/somewhere/loop.py", "exec")
    exec(code, {"__name__": "loop_that_nobody_imported"}, names)

    assert usercode.is_user_class(names["Late"])


def test_variables_are_read_and_not_kept() -> None:
    frame = sys._getframe()
    thing = Thing()
    gone = weakref.ref(thing)

    assert usercode.locals_of(frame)["thing"] is thing
    assert usercode.local_of(frame, "thing") is thing
    del thing

    assert gone() is None


def test_the_users_own_locals_are_not_emptied() -> None:
    def train(rate: float) -> dict[str, object]:
        arguments = locals()
        usercode.locals_of(sys._getframe())
        return arguments

    assert train(0.5)["rate"] == 0.5


def test_a_module_is_never_emptied() -> None:
    scope: dict[str, object] = {"usercode": usercode, "sys": sys, "kept": 1}
    exec("found = usercode.locals_of(sys._getframe())", scope)

    assert scope["kept"] == 1


def test_names_without_noise() -> None:
    assert usercode.plain_name("make.<locals>.step") == "make.step"
