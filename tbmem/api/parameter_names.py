"""Errors that name the parameters of a Python function, where those of the command name its options."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tbmem.errors import UsageError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![a-z-]| \{)")
"""An option, but not one of a program's own that is advised: ``--steps {}``."""


def names_parameters(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Have the errors of a function say ``gpu`` where a command's say ``--gpu``, of all of its parameters."""
    names = {f"--{name.replace('_', '-')}": name for name in inspect.signature(function).parameters}

    @functools.wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except UsageError as error:
            error.args = (_OPTION.sub(lambda option: names.get(option[0], option[0]), str(error)),)
            raise

    return called
