"""Hands a function over to the process of a rehearsal, and calls it there.

That process runs ``python -m tbmem.rehearsal.function FILE [NAME=NUMBER]...``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle

from tbmem.errors import UsageError


@contextmanager
def written_call(
    function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[list[str]]:
    """Words of a command line that calls a function in another process, within the block.

    Functions of scripts and notebooks are handed over by value, those of modules by name.

    Raises:
        UsageError: The function or an argument cannot be handed over.
    """
    try:
        call = cloudpickle.dumps((list(map(str, sys.path)), os.getcwd()))
        call += cloudpickle.dumps((function, tuple(arguments), dict(named)))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{name_of(function)}: cannot be handed over to a process of its own ({reason})") from error
    with TemporaryDirectory(prefix="tbmem-call-") as folder:
        path = Path(folder, name_of(function))
        path.write_bytes(call)
        yield ["-m", __name__, str(path)]


def name_of(function: Callable[..., Any]) -> str:
    """Name of a function for people."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    return name.rpartition(".")[2].strip("<>") or "function"


def main(words: Sequence[str]) -> None:
    """Call the function of a file; further words are arguments that are numbers."""
    numbers = {name: int(value) for name, _, value in (word.partition("=") for word in words[1:])}
    with open(words[0], "rb") as file:
        paths, folder = cloudpickle.load(file)
        sys.path += [path for path in paths if path not in sys.path]
        os.chdir(folder)
        function, arguments, named = cloudpickle.load(file)
    function(*arguments, **{**named, **numbers})


if __name__ == "__main__":
    main(sys.argv[1:])
