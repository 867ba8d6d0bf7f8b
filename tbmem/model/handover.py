"""Hands functions and objects over to another process of the same Python, with the search path of modules.

Functions and classes of scripts and notebooks go by value, with the file and the lines that they come from; those of
modules go by name.
"""

from __future__ import annotations

import io
import sys
from types import CodeType
from typing import Any

import cloudpickle


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, which by itself leaves out the file of a function: lines are named by it."""

    def reducer_override(self, value: Any) -> Any:
        """How a value is made again."""
        if isinstance(value, CodeType):
            make, arguments = self.dispatch_table[CodeType](value)
            return _code, (make, arguments, value.co_filename)
        return super().reducer_override(value)


def packed(value: Any, pickler: type[Pickler] = Pickler) -> bytes:
    """A value and the search path as bytes; what cannot be pickled raises an exception of any kind."""
    file = io.BytesIO()
    cloudpickle.dump(sys.path, file)
    pickler(file).dump(value)
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """The value, after the search path is extended by what is missing."""
    file = io.BytesIO(data)
    sys.path += [path for path in cloudpickle.load(file) if path not in sys.path]
    return cloudpickle.load(file)


def _code(make: Any, arguments: tuple[Any, ...], file: str) -> CodeType:
    code: CodeType = make(*arguments)
    return code.replace(co_filename=file)
