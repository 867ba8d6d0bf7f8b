"""The process that measures one cell: JSON on standard input, an answer into the file named on the command line.

It leaves a SweepCell as JSON. Where it leaves nothing the system has ended it, most likely for want of memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tbmem.model.files import complete_or_nothing
from tbmem.model.sweep import Status, SweepCase, SweepCell
from tbmem.runtime.sweep_cell import run_cell


def main(arguments: list[str]) -> None:
    """Measure the cell on standard input."""
    given = json.load(sys.stdin)
    case = SweepCase(**given["case"])
    try:
        cell = run_cell(case, Path(given["path"]))
    except Exception as error:
        what = (str(error).splitlines() or [""])[0]
        cell = SweepCell(case=case, status=Status.FAILED, note=f"{type(error).__name__}: {what}")
    with complete_or_nothing(Path(arguments[0])) as partial:
        partial.write_text(json.dumps(cell.to_dict()))


if __name__ == "__main__":
    main(sys.argv[1:])
