"""Functions that a Python file has, for the name of a factory that is incomplete or wrong."""

from __future__ import annotations

import ast
from pathlib import Path

from tbmem.errors import UsageError
from tbmem.model.job import Job

_SHOWN = 8


def refuse_without_function(job: Job) -> None:
    """Check that a model that is a Python file names a function of it, ``file.py:function``.

    Raises:
        UsageError: It names none.
    """
    if not job.model.endswith(".py"):
        return
    path = Path(job.search_path or "", job.model)
    if not path.is_file():
        raise UsageError(f"--model {job.model}: there is no file {job.model}")
    raise UsageError(f"--model {job.model}: add :function; {functions_in(path)}")


def functions_in(path: Path) -> str:
    """The functions at the top of a file, in words; nothing of it is executed."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        return f"it cannot be parsed: {error}"
    functions = [each.name for each in body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    if not functions:
        return "it has no functions"
    rest = f" and {len(functions) - _SHOWN} more" if len(functions) > _SHOWN else ""
    return f"it has {', '.join(functions[:_SHOWN])}{rest}"
