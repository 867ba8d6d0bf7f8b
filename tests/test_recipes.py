"""The code of docs/recipes.md runs, in the page's order and in one folder, and says what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.slow
PAGE = (PROJECT / "docs/recipes.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's Python has run; its output lies there."""
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "page.py").write_text("\n\n".join(_blocks("python")))
    done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True, timeout=280, cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "output").write_text(done.stdout)
    return folder


def test_the_page_has_code() -> None:
    assert len(_blocks("python")) >= 9
    assert len(_blocks("bash")) >= 3


def test_what_the_python_prints(folder: Path) -> None:
    output = (folder / "output").read_text()

    # the profiler is off after the first epoch, and its windows are there
    assert "after epoch 0 the profiler is stopped" in output
    assert "ProfilerCost(windows=1" in output
    # categories are known, and weights are as large as they are
    weights = 2 * 128 * 512 * 4 + (512 + 128) * 4
    assert re.search(rf"PARAMETER +{weights:,} B .*\(known\)", output)
    # a whole step needs more than forward, and both have weights and the optimizer's state
    peaks = [int(text.replace(",", "")) for text in re.findall(r"(?:forward|training step): ([\d,]+) B", output)]
    assert 3 * weights < peaks[0] < peaks[1]
    (added,) = re.findall(r"backward pass and optimizer: \+([\d,]+) B", output)
    assert int(added.replace(",", "")) == peaks[1] - peaks[0]
    # the peak grows with the length
    (lengths,) = re.findall(r"^\{128: .*\}$", output, flags=re.MULTILINE)
    assert sorted(values := list(json.loads(re.sub(r"(\d+):", r'"\1":', lengths)).values())) == values
    # in mixed precision activations are smaller
    (change,) = re.findall(r"^ACTIVATION +([+-][\d,]+) B$", output, flags=re.MULTILINE)
    assert int(change.replace(",", "")) < 0
    # two moments per weight and a counter per tensor, on the CPU
    assert f"{{'cpu': {2 * weights + 4 * 4}}}" in output
    # a data set that keeps what it has decoded
    assert re.search(r"^leak .*held by Tiles.decoded at .*self.decoded\[index\] = torch.rand", output, re.MULTILINE)
    # and the report of the run that was too large
    assert "why:       capacity: the request alone (4096 TiB) is larger than" in output
    assert "list 'history'" in output


@pytest.mark.parametrize("block", range(len(_blocks("bash"))))
def test_commands(block: int, folder: Path) -> None:
    for line in filter(None, _blocks("bash")[block].splitlines()):
        command = line.replace("tbmem ", f"{sys.executable} -m tbmem ", 1)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, cwd=folder)
        assert done.returncode in ((0, 1) if " estimate " in command else (0,)), f"{line}\n{done.stderr}"
        assert done.stdout
