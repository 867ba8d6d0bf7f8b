"""Functions and objects arrive in another process as they were, with their lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tbmem.model.handover import packed, unpacked
from tests.conftest import PROJECT


def test_a_local_function_arrives_with_its_file_and_lines(tmp_path: Path) -> None:
    # given a function that no other process could import
    factor = 3

    def times(number: int) -> int:
        return factor * number

    (tmp_path / "data").write_bytes(packed((times, Path)))

    # when another process takes it
    program = (
        "import json, sys; from tbmem.model.handover import unpacked\n"
        "f, kind = unpacked(open(sys.argv[1], 'rb').read())\n"
        "code = f.__code__; print(json.dumps([f(2), code.co_filename, code.co_firstlineno, kind.__name__]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT, timeout=60)

    # then it is the same
    code = times.__code__
    assert json.loads(done.stdout) == [6, code.co_filename, code.co_firstlineno, "Path"]


def test_the_search_path_is_extended_by_what_is_missing() -> None:
    before = list(sys.path)

    assert unpacked(packed([1, 2])) == [1, 2]

    assert sys.path == before
