"""The process's arguments go in, an exit code comes out: `tbmem` and `python -m tbmem` begin here."""

from __future__ import annotations

import sys

from tbmem.cli.launch import Runnable, plain_spec
from tbmem.errors import TbmemError


def main() -> None:
    """Start a program for `tbmem run`, at once where its command line is plain; hand all else to the commands."""
    order = plain_spec(sys.argv[2:]) if sys.argv[1:2] == ["run"] else None
    if order is None:
        from tbmem.cli.main import main as commands

        commands()
        return
    try:
        program: Runnable = order.prepare()
    except TbmemError as error:
        print(f"tbmem: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tbmem: interrupted", file=sys.stderr)
        sys.exit(130)
    # out here its exceptions, its exit code and Ctrl-C are the interpreter's business, as if it ran alone
    program.run()
