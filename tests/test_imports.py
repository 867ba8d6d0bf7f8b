"""The floors: imports go down only, and what must stay light loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

PACKAGE = PROJECT / "tbmem"

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "web": set(),
    "model": {"errors", "units"},
    "config": {"errors", "units"},
    "analysis": {"model", "config", "errors", "units"},
    "sources": {"model", "errors", "units"},
    "present": {"analysis", "model", "web", "errors", "units"},
    "offline": {"present", "analysis", "sources", "model", "web", "errors", "units", "version"},
    "plugin": {"offline", "present", "web", "errors"},
    "runtime": {"present", "analysis", "sources", "config", "model", "errors", "units", "version"},
    "demo": {"runtime", "config", "model", "errors", "units"},
    "cli": {
        "demo",
        "runtime",
        "offline",
        "present",
        "analysis",
        "sources",
        "config",
        "model",
        "errors",
        "units",
        "version",
    },
    "integrations": {"runtime", "present", "config", "model", "errors", "units"},
    "pytest_plugin": {"runtime", "errors", "units"},
}
"""Each floor and those below it that it may use; `version` is the package's own `__version__`."""

THIRD_PARTY: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "web": set(),
    "model": {"msgspec", "numpy"},
    "config": {"omegaconf", "yaml"},
    "analysis": {"msgspec", "numpy"},
    "sources": {"msgspec", "numpy", "psutil", "torch"},
    "present": {"google_crc32c", "matplotlib", "numpy", "rich", "tensorboard"},
    "offline": {"numpy", "yaml"},
    "plugin": {"tensorboard", "werkzeug"},
    "runtime": {"msgspec", "psutil", "torch"},
    "demo": {"torch"},
    "integrations": {"torch"},
    "pytest_plugin": {"pytest"},
    "cli": {"typer", "rich", "yaml", "torch"},
}

USE_TORCH = {
    *(
        "census",
        "counters",
        "cpu_births",
        "devices",
        "event_tree",
        "graphs",
        "holders",
        "instances",
        "live_memory",
        "older_storages",
    ),
    *(
        "naming",
        "other_profilers",
        "places",
        "probes",
        "profiler_state",
        "slots",
        "tensors",
        "values",
        "weights",
    ),
}
"""Sources that look at a running training; all others run where torch is not installed."""

FRAMEWORKS = {
    "lightning": set(),  # imported by name: it has two
    "huggingface": {"transformers"},
    "accelerate": {"accelerate"},
    "ignite": {"ignite"},
    "keras": {"keras"},
}
"""The one framework that each adapter may import."""


def _floor(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "tbmem":
                names |= {f"tbmem.{alias.name}" for alias in node.names}
            else:
                names.add(node.module)
    return names


def _modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if _floor(path) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    floor = _floor(path)
    for name in _imported(path):
        top, *rest = name.split(".")
        if top == "tbmem":
            target = "version" if rest == ["__version__"] else rest[0]
            assert target == floor or target in MAY_IMPORT[floor], f"{path} imports {name}"
        elif top not in sys.stdlib_module_names and top != "_typeshed":
            allowed = THIRD_PARTY[floor] | (FRAMEWORKS.get(path.stem, set()) if floor == "integrations" else set())
            assert top in allowed, f"{path} imports {name}"


def test_readers_of_files_and_of_the_host_need_no_torch() -> None:
    for path in (PACKAGE / "sources").glob("*.py"):
        if path.stem not in USE_TORCH:
            assert "torch" not in {name.split(".")[0] for name in _imported(path)}


def test_there_is_no_circle() -> None:
    # given every module and the modules that it imports
    edges = {}
    for path in _modules():
        module = ".".join(("tbmem", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        edges[module] = {name for name in _imported(path) if name.startswith("tbmem.")} - {module}

    # when modules that import nothing left are taken away, again and again
    while True:
        leaves = {module for module, targets in edges.items() if not targets & edges.keys()}
        if not leaves:
            break
        edges = {module: targets for module, targets in edges.items() if module not in leaves}

    # then nothing remains
    assert edges == {}


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import tbmem", ("torch", "numpy", "tensorboard", "omegaconf", "rich", "psutil")),
        ("import tbmem.errors, tbmem.units", ("torch", "numpy")),
        ("import tbmem.cli.main", ("torch", "tensorboard", "psutil")),
        ("import tbmem.model.monitor_log, tbmem.analysis.patterns, tbmem.present.summary", ("torch", "tensorboard")),
        ("import tbmem.model.address_book", ("torch",)),
        ("import tbmem.offline.study, tbmem.present.analysis", ("torch", "tensorboard", "psutil", "omegaconf")),
        ("import tbmem.offline.reports", ("torch", "tensorboard", "psutil", "omegaconf", "matplotlib")),
        ("import tbmem.sources.snapshot, tbmem.sources.trace", ("torch", "tensorboard", "psutil")),
        ("import tbmem.model.timeline_file", ("torch",)),
        ("import tbmem.plugin.loader", ("torch", "numpy", "matplotlib")),
        ("import tbmem.plugin.plugin", ("torch", "matplotlib", "psutil", "omegaconf")),
        ("import tbmem.cli.entry", ("torch", "typer", "rich", "omegaconf", "yaml")),
        ("import tbmem.cli.watch, tbmem.cli.check, tbmem.pytest_plugin", ("torch", "tensorboard")),
        ("import tbmem.pytest_plugin", ("torch", "numpy", "rich", "psutil")),
    ],
)
def test_what_must_stay_light_loads_nothing_heavy(statement: str, forbidden: tuple[str, ...]) -> None:
    program = f"{statement}; import sys; print(' '.join(sys.modules))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert not set(forbidden) & set(done.stdout.split())


def test_sizes_stay_readable() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in _modules()}

    assert max(lines.values()) <= 450, max(lines, key=lambda path: lines[path])
