"""The wheel in fresh environments of several Pythons: seconds, size without torch, the demo elsewhere, extras.

    python benchmarks/installed.py [--python python3.10 ...] [--torch 2.13.0] [--extras]

It builds sdist and wheel (``pip install --group release``). In each environment torch is installed first, then the
wheel: the torch that was there must still be there. The size is that of all files of all distributions that the second
step brought, with the bytecode that pip compiles; what torch itself depends on is not in it. With ``--extras`` all
extras are installed at once afterwards. Needs an index of packages, and 6 GB for torch where it is a CUDA build.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parent.parent
SIZES = """
import json, re
from importlib.metadata import distributions

found = {re.sub("[_.]", "-", each.name.lower()): each for each in distributions()}

def needed(name, so_far):
    if name in found and name not in so_far:
        so_far.add(name)
        for line in found[name].requires or ():
            if "extra ==" not in line:
                needed(re.sub("[_.]", "-", re.match(r"[\\w.-]+", line)[0].lower()), so_far)
    return so_far

viewers = needed("tensorboard", needed("torch-tb-profiler", set()))

def size(each, suffix=""):
    paths = (file.locate() for file in each.files or () if str(file).endswith(suffix))
    return sum(path.stat().st_size for path in paths if path.is_file())

print(json.dumps({n: (size(d), size(d, ".pyc"), d.version, n in viewers) for n, d in found.items()}))
"""
ADAPTERS = "import importlib, sys; [importlib.import_module(f'tbmem.integrations.{name}') for name in sys.argv[1:]]"
LIMIT = 120
"""MiB without torch that issue 20 asks for."""
MIB = 1 << 20


class Sizes(NamedTuple):
    """Bytes of the files of one distribution, and of its bytecode."""

    bytes: int
    bytecode: int
    version: str
    is_viewers: bool
    """Whether tensorboard or torch-tb-profiler needs it."""


class Environment:
    """A virtual environment of one Python."""

    def __init__(self, python: str, folder: Path) -> None:
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        self.install("--upgrade", "pip>=25.1")

    def install(self, *words: str) -> float:
        """Run pip; returns its seconds."""
        began = time.perf_counter()
        subprocess.run([self.python, "-m", "pip", "install", "--quiet", *words], check=True)
        return time.perf_counter() - began

    def run(self, *words: str, folder: Path | None = None) -> str:
        """Run Python; returns what it prints."""
        environment = {**os.environ, "KERAS_BACKEND": "torch"}
        done = subprocess.run(
            [self.python, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{shlex.join(words)} failed:\n{done.stderr}")
        return done.stdout

    def sizes(self) -> dict[str, Sizes]:
        """Each distribution that is installed."""
        return {name: Sizes(*values) for name, values in json.loads(self.run("-c", SIZES)).items()}


def build(folder: Path) -> Path:
    """Build sdist and wheel; returns the wheel."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(PROJECT)], check=True, stdout=subprocess.DEVNULL
    )
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} KiB · {sdist.name}: {sdist.stat().st_size / MIB:.1f} MiB\n")
    return wheel


def extras_of(wheel: Path) -> list[str]:
    """The names of a wheel's extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name)).get_all("Provides-Extra", [])


def measure(python: str, wheel: Path, torch: str, with_extras: bool, folder: Path) -> list[str]:
    """The cells of one Python."""
    environment = Environment(python, folder / "environment")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    version = environment.run("--version").split()[1]
    torch_seconds = environment.install(f"torch=={torch}")
    before = environment.sizes()
    seconds = environment.install(str(wheel))
    after = environment.sizes()
    assert after["torch"] == before["torch"], "torch was replaced"
    added = {name: sizes for name, sizes in after.items() if name not in before}
    total, bytecode = (sum(getattr(each, field) for each in added.values()) for field in ("bytes", "bytecode"))
    own = sum(each.bytes for each in added.values() if not each.is_viewers)
    began = time.perf_counter()
    demo = json.loads(environment.run("-m", "tbmem", "demo", "--json", folder=elsewhere))
    demo_seconds = time.perf_counter() - began
    largest = sorted(added.items(), key=lambda item: -item[1].bytes)[:8]
    print(f"{version}: " + ", ".join(f"{name} {sizes.bytes / MIB:.1f}" for name, sizes in largest), flush=True)
    cells = [
        version,
        after["torch"].version,
        f"{torch_seconds:.0f}",
        f"{seconds:.0f}",
        f"{total / MIB:.0f} ({(total - bytecode) / MIB:.0f})",
        f"{own / MIB:.0f}",
        f"{demo_seconds:.0f}, {demo['verdicts']['cpu']}",
    ]
    return [*cells, _extras(environment, wheel, elsewhere) if with_extras else ""]


def _extras(environment: Environment, wheel: Path, folder: Path) -> str:
    """Install all extras at once and import each adapter."""
    extras = extras_of(wheel)
    torch = environment.sizes()["torch"]
    seconds = environment.install(f"{wheel}[{','.join(extras)}]")
    assert environment.sizes()["torch"] == torch, "torch was replaced"
    print(f"with all extras ({', '.join(extras)}): {seconds:.0f} s", flush=True)
    adapters = [name for name in extras if (PROJECT / "tbmem" / "integrations" / f"{name}.py").exists()]
    environment.run("-W", "ignore", "-c", ADAPTERS, *adapters, folder=folder)
    return f"{seconds:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="may be given several times")
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--extras", action="store_true")
    options = parser.parse_args()
    size = f"MiB (without bytecode; limit {LIMIT})"
    own = "MiB that neither tensorboard nor torch-tb-profiler needs"
    head = ["Python", "torch", "torch, s", "tbmem, s", size, own, "demo, s", "extras, s"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    with tempfile.TemporaryDirectory() as built:
        wheel = build(Path(built))
        for python in options.python or [sys.executable]:
            with tempfile.TemporaryDirectory() as folder:
                cells = measure(python, wheel, options.torch, options.extras, Path(folder))
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
