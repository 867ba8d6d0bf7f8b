"""What may be missing: optional packages named by their extra, and versions of torch by feature."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tbmem
from tbmem import requirements
from tbmem.errors import MissingDependencyError
from tbmem.model.category import Category
from tbmem.requirements import TorchFeature, missing, require


def test_a_package_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = "drawing needs matplotlib (tbmem's extra plots): pip install 'matplotlib>=3.8'"

    assert missing("matplotlib", extra="plots", feature="drawing") == line
    with pytest.raises(MissingDependencyError, match=re.escape(line)):
        require("matplotlib", extra="plots", feature="drawing")


@pytest.mark.parametrize(("found", "fits"), [("0.4.13", False), ("0.5", True), ("0.5.5rc1", True), ("1.0", True)])
def test_an_old_version_is_refused(found: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "version", lambda name: found)

    if fits:
        require("pytest", extra="ignite", minimum="0.5")
    else:
        line = r'ignite needs pytest 0\.5 or newer \(0\.4\.13 is installed\): pip install "pytest>=0\.5"'
        with pytest.raises(MissingDependencyError, match=line):
            require("pytest", extra="ignite", minimum="0.5")


@pytest.mark.parametrize(("found", "fits"), [("2.8.0+cu128", False), ("2.9.0a0+git1", True), ("2.10.1", True)])
def test_a_feature_names_the_torch_that_it_needs(found: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", found)

    if fits:
        assert not TorchFeature.ESTIMATE.missing
        TorchFeature.ESTIMATE.require()
    else:
        line = rf"an estimate .* needs torch 2\.9 or newer \({re.escape(found.partition('+')[0])} is installed\)"
        with pytest.raises(MissingDependencyError, match=line):
            TorchFeature.ESTIMATE.require()


def test_without_torch_nothing_is_said_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise requirements.PackageNotFoundError(name)

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(requirements, "version", absent)

    assert not TorchFeature.ESTIMATE.missing


@pytest.mark.torch_versions
def test_the_names_of_saved_tensors_are_there_or_missed_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # given
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # when a window is recorded
    with (
        caplog.at_level(logging.INFO, "tbmem"),
        tbmem.MemoryCallback(
            run={"logdir": str(tmp_path), "name": "run"}, profiling={"wait": 0, "warmup": 1, "active": 2, "repeat": 1}
        ) as memory,
    ):
        memory.watch(model, optimizer)
        for _ in range(5):
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            memory.step()
    # then there is a line for what this torch has not, and all else works
    assert memory.summary is not None
    assert not memory.summary.problems
    (path,) = memory.summary.address_books
    categories = {note.category for note in tbmem.AddressBook.load(path).notes()}
    said = [record.getMessage() for record in caplog.records if "saves" in record.getMessage()]
    if line := TorchFeature.SAVED_TENSORS.missing:
        assert said == [f"profiler · {line}"]
        assert Category.ACTIVATION not in categories
    else:
        assert not said
        assert Category.ACTIVATION in categories
    (trace,) = memory.summary.traces
    assert tbmem.analyze(trace).main.peak.bytes > 0


@pytest.mark.torch_versions
@pytest.mark.skipif(not TorchFeature.ESTIMATE.missing, reason="this torch makes estimates")
@pytest.mark.parametrize(
    "words", [["estimate", "--model", "gpt2"], ["sweep", "--model-size", "small"]], ids=lambda it: it[0]
)
def test_a_command_that_needs_a_newer_torch_says_so(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tbmem", *words], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.splitlines()[-1] == f"tbmem {words[0]}: {TorchFeature.ESTIMATE.missing}"
    assert not list(tmp_path.iterdir())


@pytest.mark.torch_versions
@pytest.mark.slow
def test_the_demo_finds_its_leak(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tbmem", "demo", "--inject", "leak", "--device", "cpu", "--logdir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "history.append" in done.stderr
