"""The process that executes jobs: JSON on standard input, answers into the folder named on the command line.

Job ``n`` leaves ``n.npz``, a FakeRun, or ``n.txt``, one line that says what is wrong. Where neither is left torch has
ended the process: this way of executing does not work here. Standard output is the model's own.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from tbmem.errors import TbmemError
from tbmem.model.files import complete_or_nothing
from tbmem.model.job import Job


def main(arguments: list[str]) -> None:
    """Execute the jobs on standard input."""
    folder = Path(arguments[0])
    for number, text in enumerate(json.load(sys.stdin)):
        job = Job.from_json(text)
        try:
            _leave(folder / f"{number}.npz", _execute(job))
        except Exception as error:
            _leave(folder / f"{number}.txt", explain(job, error).encode())


def _leave(path: Path, answer: bytes) -> None:
    with complete_or_nothing(path) as partial:  # the process may be ended at any moment
        partial.write_bytes(answer)


def _execute(job: Job) -> bytes:
    from tbmem.sources.fake.execution import execute

    return execute(job).to_bytes()


def explain(job: Job, error: Exception) -> str:
    """One line: what is wrong, where, and what to do."""
    if isinstance(error, TbmemError):
        return str(error)
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    kind = type(error).__name__
    where = _place(error)
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode"):
        return (
            f"--model {job.model}: {where}shapes depend on values ({what}), which an estimate does not have;"
            " give the model an upper bound instead"
        )
    if kind in ("UnsupportedOperatorException", "UnsupportedFakeTensorException", "NotImplementedError"):
        return (
            f"--model {job.model}: {where}an operator has no fake version ({what}); register one with"
            " torch.library.register_fake"
        )
    return f"--model {job.model}: {where}{kind}: {what}"


def _place(error: Exception) -> str:
    """The last line of code that is neither torch's nor ours."""
    here = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (
            not frame.filename.startswith(here)
            and "/torch/" not in frame.filename
            and "importlib" not in frame.filename
        ):
            return f"{Path(frame.filename).name}:{frame.lineno}: "
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
