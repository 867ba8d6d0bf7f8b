"""A framework that is missing or too old is one clear error."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from tbmem.errors import MissingDependencyError
from tbmem.integrations import versions as frameworks
from tbmem.integrations.versions import require

MODULES = {
    "lightning": ("lightning", "lightning.pytorch", "pytorch_lightning"),
    "huggingface": ("transformers",),
    "accelerate": ("accelerate",),
    "ignite": ("ignite",),
    "keras": ("keras",),
}


@pytest.mark.parametrize("adapter", MODULES)
def test_a_missing_framework_names_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES[adapter]:
        if "." in module:
            monkeypatch.delitem(sys.modules, module, raising=False)
        else:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"tbmem.integrations.{adapter}", raising=False)
    if adapter == "lightning":
        monkeypatch.delitem(sys.modules, "pytorch_lightning")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        monkeypatch.setattr(frameworks, "find_spec", lambda name: None)

    with pytest.raises(MissingDependencyError, match=rf"pip install 'tbmem\[{adapter}\]'") as caught:
        import_module(f"tbmem.integrations.{adapter}")

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("found", "fits"), [("0.4.13", False), ("0.5", True), ("0.5.5rc1", True), ("1.0", True)])
def test_an_old_version_is_refused(found: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "version", lambda name: found)

    if fits:
        require("pytest", extra="ignite", minimum="0.5")
    else:
        with pytest.raises(MissingDependencyError, match=r"needs pytest 0\.5 or newer \(0\.4\.13 is installed\)"):
            require("pytest", extra="ignite", minimum="0.5")
