"""What can be read of a factory's file without executing it: its functions, and the batch of one by default."""

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


def default_batch(model: str, folder: str) -> int | None:
    """The default of the parameter ``batch`` of a factory, ``file.py:function``; nothing of it is executed."""
    arguments = _arguments(model, folder)
    return None if arguments is None else _default_of(arguments, "batch")


def takes_no_batch(model: str, folder: str) -> bool:
    """Whether a factory, ``file.py:function``, is found and has no parameter ``batch``; nothing of it is executed."""
    arguments = _arguments(model, folder)
    if arguments is None or arguments.kwarg is not None:
        return False
    return all(each.arg != "batch" for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _arguments(model: str, folder: str) -> ast.arguments | None:
    file, _, name = model.rpartition(":")
    try:
        body = ast.parse(Path(folder, file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None  # refused later, with its reason
    return next((each.args for each in body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _default_of(arguments: ast.arguments, name: str) -> int | None:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False)
    ]
    for argument, value in [*pairs, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]:
        if argument.arg == name and isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
            return value.value
    return None


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
