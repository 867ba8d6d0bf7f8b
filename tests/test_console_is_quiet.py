"""Nothing but tbmem's own lines reaches the console of a program that uses it."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

OURS = re.compile(r"^\d\d:\d\d:\d\d tbmem ")


@pytest.mark.slow
def test_no_line_of_torchs_own(tmp_path: Path) -> None:
    # given a training with everything switched on, freeing what was allocated before the window
    program = f"""
        import torch
        from tbmem import MemoryCallback
        model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU())
        optimizer = torch.optim.AdamW(model.parameters())
        old = [torch.randn(100) for _ in range(3000)]
        with MemoryCallback(run={{"logdir": {str(tmp_path)!r}}}) as memory:
            memory.watch(model, optimizer)
            for step in range(14):
                model(torch.randn(8, 32)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 4:
                    old.clear()
                memory.step()
    """

    # when it runs with all of Python's warnings on
    command = [sys.executable, "-W", "always", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    # then every line on the console is ours
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    strange = [line for line in done.stderr.splitlines() if not OURS.match(line)]
    assert strange == []
