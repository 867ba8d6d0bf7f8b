"""The public names are those that are listed, and they are documented."""

from __future__ import annotations

import ast
import inspect

import pytest

import tbmem
from tests.conftest import PROJECT


def test_all_is_sorted_and_complete() -> None:
    assert tbmem.__all__ == sorted(tbmem.__all__)
    assert set(tbmem.__all__) == set(tbmem._HOMES)


def test_what_type_checkers_see_is_what_runs() -> None:
    # given the names imported under TYPE_CHECKING
    tree = ast.parse((PROJECT / "tbmem/__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}

    # then they are the lazy ones, from the same modules
    assert seen == tbmem._HOMES


@pytest.mark.parametrize("name", tbmem.__all__)
def test_every_name_is_there_and_says_what_it_is_for(name: str) -> None:
    assert inspect.getdoc(getattr(tbmem, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = tbmem.nonsense


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert tbmem.__version__ == version("tbmem")
