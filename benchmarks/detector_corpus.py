"""How the detector judges the corpus's loops: real small trainings, leaking and innocent, each in its own process.

    python benchmarks/detector_corpus.py [--steps 60]

Each loop is run under a MemoryMonitor with the default limits and with limits that fit loops of this size (they
leak 10 to 260 KiB a step, and the defaults only speak from 2 MiB on). A verdict is right if the loop's ACCEPT
lists it. The corpus is found through TBMEM_CORPUS, else in ../shared/corpus.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import heading, table

SMALL = {"min_growth": "128 KiB", "min_growth_percent": 0.0, "min_spike": "2 MiB", "spike_percent": 0.5}
LIMITS: dict[str, dict[str, Any]] = {"defaults": {}, "small loops": SMALL}


def corpus() -> Path:
    """Folder of the corpus."""
    project = Path(__file__).parent.parent
    return Path(os.environ.get("TBMEM_CORPUS", project.parent / "shared" / "corpus"))


def run_one(path: str, steps: int, limits: str) -> dict[str, Any]:
    """Run a loop in this process and judge it."""
    from tbmem import MemoryMonitor
    from tbmem.config.schema import PatternsConfig

    spec = importlib.util.spec_from_file_location("loop", path)
    assert spec is not None and spec.loader is not None
    loop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loop)
    step = loop.make()
    with MemoryMonitor(patterns=PatternsConfig(**LIMITS[limits]), console=False) as monitor:
        for number in range(steps):
            step(number)
            monitor.step()
    (verdict,) = monitor.verdicts()
    return {"label": loop.LABEL, "accept": loop.ACCEPT, "verdict": verdict.kind.value}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--one")
    arguments.add_argument("--limits", default="defaults")
    arguments.add_argument("--all", action="store_true", help="list every loop, not only the wrong ones")
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(run_one(given.one, given.steps, given.limits)))
        return
    loops = sorted((corpus() / "loops").glob("*.py"))
    if not loops:
        sys.exit(f"no corpus at {corpus()}: set TBMEM_CORPUS")
    print(heading(f"detector_corpus.py: verdicts after {given.steps} steps"))
    for limits in LIMITS:
        rows, right = [], {"leak": [0, 0], "innocent": [0, 0], "spike": [0, 0]}
        for path in loops:
            command = [sys.executable, __file__, "--one", str(path), "--steps", str(given.steps), "--limits", limits]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
            told = json.loads(done.stdout.splitlines()[-1])
            group = told["label"] if told["label"] in ("leak", "spike") else "innocent"
            good = told["verdict"] in told["accept"] or (group == "innocent" and told["verdict"] == "stable")
            right[group][0] += good
            right[group][1] += 1
            if given.all or not good:
                rows.append([path.stem, told["label"], told["verdict"], "right" if good else "WRONG"])
        counts = ", ".join(f"{group} {good} of {of}" for group, (good, of) in right.items())
        print(f"limits for {limits}: right are {counts}\n")
        print(table(["loop", "label", "verdict", ""], rows))
        print()


if __name__ == "__main__":
    main()
