"""The marks and the fixture of the pytest plugin, in sessions of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.slow


def _session(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text("import pytest, torch\nkept = []\n" + textwrap.dedent(code))
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "tbmem.pytest_plugin", "test_it.py"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder)


def test_marks_and_fixture(tmp_path: Path) -> None:
    code = """
    @pytest.mark.limit_memory("80 MiB")
    def test_needs_20(): torch.ones(5 << 20).sum()

    @pytest.mark.limit_memory("80 MiB")
    def test_needs_200(): torch.ones(50 << 20).sum()

    @pytest.mark.no_leak(steps=20)
    def test_keeps(): kept.append(torch.ones(1000))

    @pytest.mark.no_leak
    @pytest.mark.parametrize("size", [100])
    def test_trains(size, tmp_path): torch.nn.Linear(size, size)(torch.randn(3, size)).sum().backward()

    @pytest.mark.no_leak
    def test_counts_its_own_steps(memory):
        for _ in range(20):
            kept.append(torch.ones(100_000))
            memory.step()

    def test_measures(memory):
        held = torch.ones(10 << 20)
        assert 30 << 20 < memory.peak < 80 << 20

    @pytest.mark.no_leak
    def test_fails_by_itself(): assert kept == "mine"

    @pytest.mark.limit_memory("5 MiB", device="cuda:99")
    def test_elsewhere(): pass

    class TestOld(__import__("unittest").TestCase):
        @pytest.mark.no_leak
        def test_not_repeated(self): pass
    """

    done = _session(tmp_path, code)

    lines = done.stdout
    assert "5 failed, 3 passed, 1 skipped" in lines, lines
    for failed in (
        "test_needs_200",
        "test_keeps",
        "test_counts_its_own_steps",
        "test_fails_by_itself",
        "TestOld::test_not_repeated",
    ):
        assert f"FAILED test_it.py::{failed}" in lines
    assert "limit_memory: needed " in lines
    assert "no_leak: each of 20 steps keeps" in lines
    # and who holds it is named
    assert "module-level list 'kept' in test_it.py: +" in lines
    assert "def test_keeps(): kept.append(torch.ones(1000))" in lines
    assert "mine" in lines
    assert "pytest did not call this test itself" in lines


def test_what_a_fixture_holds_has_its_name(tmp_path: Path) -> None:
    # given a model in no variable but pytest's own
    code = """
class Net:
    def __init__(self): self.kept = []

@pytest.fixture(scope="module")
def net(): return Net()

@pytest.mark.no_leak
def test_it(net):
    net.kept.append(torch.ones(1000))
"""
    # when
    done = _session(tmp_path, code)
    # then
    assert "  Net.kept: +" in done.stdout, done.stdout
    assert "net.kept.append(torch.ones(1000))" in done.stdout


def test_what_a_loop_of_its_own_keeps_is_named(tmp_path: Path) -> None:
    # given a list that is gone when the test has ended
    code = """
@pytest.mark.no_leak
def test_it(memory):
    losses = []
    for _ in range(20):
        losses.append(torch.ones(10_000))
        memory.step()
"""
    # when
    done = _session(tmp_path, code)
    # then
    assert "  list 'losses' in test_it(): +" in done.stdout, done.stdout
    assert "losses.append(torch.ones(10_000))" in done.stdout


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('limit_memory("200 M")', "'200 M' is not a size"),
        ("limit_memory(100)", "100 lacks its unit; write '100 MiB', or '100 B' for bytes"),
        ("no_leak(max_growth=100)", "100 lacks its unit"),
        ("limit_memory()", "size"),
        ("no_leak(steps=3)", "eight steps"),
        ("no_leak(speed=3)", "speed"),
        ("no_leak(steps=20.5)", "steps is a whole number"),
        ("limit_memory('1 GiB', device='cuda')", "device='cuda' is no device; write 'cpu' or 'cuda:0'"),
    ],
)
def test_a_mark_that_means_nothing_fails_its_test_and_no_other(mark: str, message: str, tmp_path: Path) -> None:
    done = _session(tmp_path, f"@pytest.mark.{mark}\ndef test_it(): pass\n\ndef test_other(): pass")

    assert (done.returncode, "1 passed, 1 error" in done.stdout) == (1, True)
    assert message in done.stdout
    assert "During handling" not in done.stdout


def test_the_code_on_the_page(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (PROJECT / "docs/commands.md").read_text(), flags=re.DOTALL)

    done = _session(tmp_path, code)

    assert "3 passed" in done.stdout, done.stdout


def test_a_session_without_marks_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import sys\ndef test_it(): assert 'torch' not in sys.modules")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tbmem.pytest_plugin", "test_it.py"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)

    assert done.returncode == 0, done.stdout
