"""Building the device: what is missing is named, what is there is built once."""

from __future__ import annotations

import importlib.machinery
import json
from pathlib import Path

import pytest

from tbmem.errors import UsageError
from tbmem.rehearsal import library
from tbmem.rehearsal.library import TorchBuild, built_library


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str) -> None:
    """Let a folder with this version file be the torch that would be imported."""
    folder.mkdir()
    (folder / "version.py").write_text(version, encoding="utf-8")
    spec = importlib.machinery.ModuleSpec("torch", None, origin=str(folder / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def test_torch_is_found_without_an_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given an installed torch for CUDA 12.8
    text = "__version__ = '2.9.1+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\n"
    installed(monkeypatch, tmp_path / "torch", text)
    # when it is looked for, then its version file says what it is
    assert TorchBuild.find() == (tmp_path / "torch", "2.9.1+cu128", "12.8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", r"2\.13\.0\+cpu has none"),
        ("__version__ = '2.1.0'\ncuda: Optional[str] = '11.8'\n", "built for CUDA 11.8"),
    ],
)
def test_another_torch_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, words: str) -> None:
    # given a torch without CUDA, or for an older one, when it is looked for, then one line says so and what to do
    installed(monkeypatch, tmp_path / "torch", text)
    with pytest.raises(UsageError, match=words) as caught:
        TorchBuild.find()
    assert "tbmem estimate" in str(caught.value)


def test_no_torch_and_no_linux_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # given no torch, or another system, when torch is looked for, then one line says so
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="no torch is installed"):
        TorchBuild.find()
    monkeypatch.setattr(library.platform, "system", lambda: "Darwin")
    with pytest.raises(UsageError, match="needs Linux, and this is Darwin"):
        TorchBuild.find()


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given no compiler on the path, when the device is built, then one line says what to install
    monkeypatch.setattr(library, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(library.shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UsageError, match="needs a C\\+\\+ compiler"):
        built_library(TorchBuild(tmp_path, "0.0", "13.0"))


def test_a_failing_compiler_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given a compiler that fails
    compiler = tmp_path / "failing"
    compiler.write_text("#!/bin/sh\necho 'error: no room' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(library, "cache_folder", lambda: cache)
    monkeypatch.setattr(library, "_definitions", lambda torch: [])
    # when the device is built, then its first line is told, and no half-built folder stays
    with pytest.raises(UsageError, match=r"cannot be built: \w+\.cpp: error: no room"):
        built_library(TorchBuild(tmp_path, "0.0", "13.0"))
    assert list(cache.iterdir()) == []


def test_what_is_built_is_whole_and_built_once(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a built device
    about = json.loads((built / "about.json").read_text())
    assert about["torch"] == "0.0"
    names = {"libcuda.so.1", "libnvidia-ml.so.1", "libnvrtc.so.13"}
    assert {path.name for path in built.iterdir()} == {library.MAIN, *names, "about.json"}
    # when it is asked for again, then no compiler is needed
    monkeypatch.setattr(library, "cache_folder", lambda: built.parent)
    monkeypatch.setattr(library, "_build", lambda *_: pytest.fail("built again"))
    name = next((path.name for path in built.parent.iterdir() if path.is_dir()), "")
    monkeypatch.setattr(library, "_digest", lambda torch: name.rpartition("-")[2])
    assert built_library(TorchBuild(built, "0.0", "13.0")) == built


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given a cache folder of the user's, when the device's place is asked for, then it lies there
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library.cache_folder() == tmp_path / "tbmem"
