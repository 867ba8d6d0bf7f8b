"""Entry point of ``tbmem`` and ``python -m tbmem``."""

from __future__ import annotations

import sys

from tbmem.cli.launch import Runnable, plain_spec
from tbmem.errors import TbmemError


def main() -> None:
    """Start a program directly for a plain command line of ``tbmem run``; else pass it to the command parser."""
    spec = plain_spec(sys.argv[2:]) if sys.argv[1:2] == ["run"] else None
    if spec is None:
        from tbmem.cli.main import main as commands

        commands()
        return
    try:
        program: Runnable = spec.prepare()
    except TbmemError as error:
        print(f"tbmem: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tbmem: interrupted", file=sys.stderr)
        sys.exit(130)
    # outside of the try its exceptions, exit code and Ctrl-C are handled as if it ran alone
    program.run()
