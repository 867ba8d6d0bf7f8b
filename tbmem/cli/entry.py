"""Entry point of ``tbmem`` and ``python -m tbmem``: runs a command or a program, and turns errors into exit codes."""

from __future__ import annotations

import sys
from typing import NoReturn

from tbmem.cli.launch import Runnable, plain_spec
from tbmem.errors import TbmemError


def main() -> None:
    """Run a command, or the program of ``tbmem run``; wrong input is exit code 2 and an interrupt 130."""
    words = sys.argv[1:]
    try:
        program = _program(words)
    except KeyboardInterrupt:
        _end("tbmem", "interrupted", 130)
    except TbmemError as error:
        _end_command(words, str(error), 2)
    except OSError as error:
        if error.filename is None:
            raise
        # a folder was to be made in its place
        reason = "this is a file; name a folder" if isinstance(error, FileExistsError) else error.strerror
        _end_command(words, f"{error.filename}: {reason}", 2)
    # outside of the try its exceptions, exit code and Ctrl-C are handled as if it ran alone
    program.run()


def _program(words: list[str]) -> Runnable:
    """The program of a plain command line of ``tbmem run``; any other command line is passed to the parser."""
    spec = plain_spec(words[1:]) if words[:1] == ["run"] else None
    if spec is not None:
        return spec.prepare()
    from tbmem.cli.main import run_command

    return run_command(words or ["--help"])


def _end_command(words: list[str], message: str, code: int) -> NoReturn:
    from tbmem.cli.main import title_of

    _end(title_of(words), message, code)


def _end(title: str, message: str, code: int) -> NoReturn:
    print(f"{title}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
