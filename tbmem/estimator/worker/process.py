"""The process that executes jobs: msgpack on standard input, answers into the folder named on the command line.

First fake CUDA tensors are tried out: ``works.txt`` is left if they do. Job ``n`` then leaves ``n.run``, a FakeRun, or
``n.txt``, one line that says what is wrong. Where ``works.txt`` is missing this way of executing does not work
here. Standard output is the model's own.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import msgspec

from tbmem.errors import TbmemError
from tbmem.model.files import atomic_write
from tbmem.model.job import Job

ON_CPU = "TBMEM_FAKE_CPU"
"""Environment: only jobs of the CPU come, and fake CUDA is left alone."""
WORKS = "works.txt"


def main(arguments: list[str]) -> None:
    """Execute the jobs on standard input."""
    folder = Path(arguments[0])
    if not _fake_cuda_works(folder):
        return
    for number, job in enumerate(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[Job])):
        try:
            from tbmem.estimator.worker.execution import execute

            _leave(folder / f"{number}.run", execute(job).to_bytes())
        except (Exception, SystemExit) as error:
            _leave(folder / f"{number}.txt", explain(job, error).encode())


def _fake_cuda_works(folder: Path) -> bool:
    if os.environ.get(ON_CPU):
        return True
    from tbmem.estimator.fake_tensors.device_guard import self_test

    try:
        self_test()
    except Exception:  # whatever torch says: the parent takes fake CPU tensors
        return False
    _leave(folder / WORKS, b"")
    return True


def _leave(path: Path, answer: bytes) -> None:
    with atomic_write(path) as partial:  # the process may be ended at any moment
        partial.write_bytes(answer)


def explain(job: Job, error: BaseException) -> str:
    """One line: what is wrong, where, and what to do."""
    return str(error) if isinstance(error, TbmemError) else f"--model {job.model}: {_place(error)}{_reason(error)}"


def _reason(error: BaseException) -> str:
    what, kind = _first_words(error), type(error).__name__
    for words, advice in _ADVICE.items():
        if words in str(error):
            return advice
    if kind == "DependsOnValueError":
        return str(error)
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode"):
        return (
            f"shapes depend on values ({what}), which an estimate does not have; give the model an upper bound instead"
        )
    if kind in ("UnsupportedOperatorException", "UnsupportedFakeTensorException", "NotImplementedError"):
        return f"an operator has no fake version ({what}); register one with torch.library.register_fake"
    if any(words in str(error) for words in _NEEDS_GPU) or kind == "InterpreterError":
        return (
            f"a kernel that only a GPU can run ({what}); make it an operator with torch.library.custom_op and give it a"
            " fake version with register_fake, or take the model's plain path"
        )
    if isinstance(error, SystemExit):
        return f"the factory ended the program ({error.code})"
    return f"{kind}: {what}"


def _first_words(error: BaseException) -> str:
    """Of what an error says: a line, and where that is long, its first sentence."""
    line = (str(error).splitlines() or [""])[0] or type(error).__name__
    return line if len(line) <= _LONG else line.partition(". ")[0][: 2 * _LONG]


_LONG = 200
_LAZY = "lazy modules take their sizes from values that an estimate does not have; give the sizes"
_ADVICE = {
    ".numpy() is not supported": (
        ".numpy() reads values, which an estimate does not have; leave it out of what the factory returns"
    ),
    "storage of SparseTensorImpl": (
        "sparse tensors have as many values as are found, which an estimate does not know; leave sparse=True out for an"
        " upper bound"
    ),
    "_pack_padded_sequence": (
        "a packed sequence is as long as its samples are together; leave pack_padded_sequence out, which makes the"
        " estimate an upper bound"
    ),
    "UnknownNumber": (
        "a size, an index or a whole number is a value that the model computes, which an estimate does not have: have"
        " the factory put it into the batch, or give the model an upper bound"
    ),
    "UninitializedParameter": _LAZY,
    "UninitializedBuffer": _LAZY,
    "shape_env must not be None": (
        "the sizes of nested tensors are values, which an estimate does not have; give the model padded tensors instead"
    ),
}
"""What fake tensors cannot do and say in words of their own, and what to do instead."""
_NEEDS_GPU = (
    "data pointer",
    "active drivers",
    "active driver",
    "NVIDIA driver",
    "not compiled with CUDA",
    "Cannot find a working triton",
    "no kernel image",
    "CUDA_HOME",
    "not linked with support for cuda",
)
"""What torch, Triton and compiled extensions say where they meet tensors without memory, or no driver."""


def _place(error: BaseException) -> str:
    """The last line of code that is neither torch's nor ours; a library's only where there is none of the user's."""
    here = str(Path(__file__).parents[1])
    places = [
        frame
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if not frame.filename.startswith(here) and "/torch/" not in frame.filename and "importlib" not in frame.filename
    ]
    users = (frame for frame in places if "-packages" not in frame.filename)
    for frame in (*users, *places):
        return f"{Path(frame.filename).name}:{frame.lineno}: "
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # the answers are in their files, and taking torch apart would take another second
