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

from tbmem.errors import UsageError, first_line
from tbmem.model.handover import packed, unpacked


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
        call = packed((os.getcwd(), function, tuple(arguments), dict(named)))
    except Exception as error:
        name = name_of(function)
        raise UsageError(f"{name}: cannot be handed over to a process of its own ({first_line(error)})") from error
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
    folder, function, arguments, named = unpacked(Path(words[0]).read_bytes())
    os.chdir(folder)
    function(*arguments, **{**named, **numbers})


if __name__ == "__main__":
    main(sys.argv[1:])
