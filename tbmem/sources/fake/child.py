"""The process that executes a job: JSON on standard input, the answer into the file named on the command line.

Standard output is the model's own. Exit 0: the file holds a FakeRun; 2: it holds one line of text that says what is
wrong. Any other end, a crash of torch included, means that this way of executing does not work here.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from tbmem.errors import TbmemError
from tbmem.model.job import Job


def main(arguments: list[str]) -> int:
    """Execute the job on standard input."""
    answer = Path(arguments[0])
    job = Job.from_json(sys.stdin.read())
    try:
        answer.write_bytes(_execute(job))
    except Exception as error:
        answer.write_text(explain(job, error))
        return 2
    return 0


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
    sys.exit(main(sys.argv[1:]))
