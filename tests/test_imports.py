"""The floors: imports go down only, and what must stay light loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

PACKAGE = PROJECT / "tbmem"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("version", "errors", "interruption", "units", "untraced", "web"),
    ("requirements", "regular_files"),
    ("model", "config"),
    ("sources", "analysis"),
    ("present",),
    ("estimator", "runtime", "offline"),
    ("rehearsal",),
    ("api",),
    ("plugin", "integrations", "sinks", "demo", "notebook", "pytest_plugin"),
    ("cli",),
)
"""From the ground up: a package imports only what stands on a lower floor. `version` is the package's `__version__`."""

ORDER: dict[str, tuple[str, ...]] = {
    "sources": (
        *("gc_pause", "program", "counters", "runs", "events", "torch_state", "snapshot", "trace", "recording"),
        *("retainers", "survivors"),
    ),
    "analysis": (
        *("growth_rate", "source_lines", "statistics", "allocator", "diagnosis", "detector", "recordings", "plots"),
        *("estimates", "runs"),
    ),
    "present": ("labels", "palette", "lines", "page", "scalars", "exports", "figures", "text", "html", "views"),
    "estimator": (
        "refusals",
        "factory_files",
        "time_limit",
        "fake_tensors",
        "workload",
        "tracker",
        "parallel",
        "execution",
        "worker",
        "advice",
        "estimate",
        "variants",
        "sweep",
    ),
    "runtime": (
        *("process", "background_writer", "log_files", "finding_listeners", "metric_sinks", "profiling", "evidence"),
        *(
            "oom",
            "meter",
            "device_judge",
            "unfinished_step",
            "record",
            "cell_meter",
            "repetition",
            "run_observer",
            "monitor",
            "profiler",
            "callback",
            "launch",
        ),
    ),
    "api": ("parameter_names", "results", "estimate", "rehearse", "report"),
    "offline": ("live_logs", "analyze", "queries", "reports"),
}
"""Inside of a package: each part imports only those that stand before it."""

THIRD_PARTY: dict[str, set[str]] = {
    "errors": set(),
    "requirements": set(),
    "regular_files": set(),
    "units": set(),
    "web": set(),
    "model": {"cloudpickle", "msgspec", "numpy"},
    "config": {"omegaconf", "yaml"},
    "sources": {"msgspec", "numpy", "psutil"},
    "analysis": {"msgspec", "numpy"},
    "present": {"google_crc32c", "matplotlib", "numpy", "rich", "tensorboard"},
    "estimator": {"msgspec", "numpy", "torch"},
    "runtime": {"psutil", "torch"},
    "rehearsal": {"psutil", "torch"},
    "api": {"torch"},
    "offline": {"numpy", "yaml"},
    "plugin": {"tensorboard", "werkzeug"},
    "integrations": {"torch"},
    "sinks": set(),
    "demo": {"torch"},
    "notebook": {"IPython"},
    "pytest_plugin": {"pytest"},
    "cli": {"typer", "rich", "yaml", "torch", "textual"},
}

USE_TORCH = ("counters", "torch_state", "retainers", "survivors")
"""Packages of `sources` that look at a running program; all others run where torch is not installed."""

FRAMEWORKS = {
    "lightning": set(),  # imported by name: it has two
    "huggingface": {"transformers"},
    "accelerate": {"accelerate"},
    "ignite": {"ignite"},
    "keras": {"keras"},
    "wandb": {"requests", "wandb"},
    "mlflow": {"mlflow"},
    "comet": {"comet_ml"},
    "prometheus": {"prometheus_client"},
    "opentelemetry": {"opentelemetry"},
}
"""The one framework that each adapter may import, and the one logger of each sink."""


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
    package, *part = path.relative_to(PACKAGE).with_suffix("").parts
    below = {name for names in FLOORS for name in names if _level(name) < _level(package)}
    for name in _imported(path):
        top, *rest = name.split(".")
        if top == "tbmem":
            target = "version" if rest == ["__version__"] else rest[0]
            assert target == package or target in below, f"{path} imports {name}"
            if target == package and package in ORDER and rest[1] != part[0]:
                order = ORDER[package]
                assert order.index(rest[1]) < order.index(part[0]), f"{path} imports {name}"
        elif top not in sys.stdlib_module_names and top != "_typeshed":
            allowed = THIRD_PARTY[floor] | (
                FRAMEWORKS.get(path.stem, set()) if floor in ("integrations", "sinks") else set()
            )
            allowed = allowed | {"torch"} if package == "sources" and part[0] in USE_TORCH else allowed
            assert top in allowed, f"{path} imports {name}"


def test_one_import_goes_up_by_name() -> None:
    # given the records' display in a notebook, which is on a floor above them
    named = [
        path for path in _modules() if '"tbmem.present' in path.read_text() and "import_module" in path.read_text()
    ]

    assert [str(path.relative_to(PACKAGE)) for path in named] == ["model/html_display.py"]


def _level(package: str) -> int:
    return next(level for level, packages in enumerate(FLOORS) if package in packages)


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
        ("import tbmem.notebook.extension, tbmem.notebook.show", ("torch", "IPython", "matplotlib")),
        ("import tbmem.cli.main", ("torch", "tensorboard", "psutil")),
        (
            "import tbmem.model.monitor_log, tbmem.analysis.detector.detector, tbmem.present.text.run_end",
            ("torch", "tensorboard"),
        ),
        ("import tbmem.model.address_book", ("torch",)),
        (
            "import tbmem.offline.analyze, tbmem.present.text.analysis_tables",
            ("torch", "tensorboard", "psutil", "omegaconf"),
        ),
        ("import tbmem.offline.reports.folders", ("torch", "tensorboard", "psutil", "omegaconf", "matplotlib")),
        ("import tbmem.sources.snapshot.reader, tbmem.sources.trace.reader", ("torch", "tensorboard", "psutil")),
        ("import tbmem.model.timeline", ("torch",)),
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
