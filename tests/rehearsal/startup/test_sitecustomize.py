"""What a Python process of a rehearsal does at its start, here without a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import PROJECT

STARTUP = PROJECT / "tbmem" / "rehearsal" / "startup"


def _python(code: str, folders: list[Path], **variables: str) -> str:
    path = os.pathsep.join(map(str, folders))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_module_of_this_name_that_it_hides_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('site')")

    assert _python("print('program')", [STARTUP, tmp_path]) == "site\nprogram\n"


def test_without_a_library_nothing_happens(tmp_path: Path) -> None:
    # given a library that is not there, as in a container that does not see the cache
    shown = _python("import sys; print(sys.meta_path[0])", [STARTUP], TBMEM_GPU_LIBRARY=str(tmp_path / "none.so"))

    # then nothing waits for torch to be imported
    assert "_AfterTorch" not in shown
