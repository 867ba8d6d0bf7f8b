"""Rehearsals beside a real GPU: public programs on both, by torch's own counters at their ends.

    python benchmarks/rehearsal_beside_gpu.py CHECKOUTS [--only NAME] [--gpu h100-80gb] [--jobs 2] [--out FILE]

CHECKOUTS, programs and data are those of programs.py. Each program that uses a GPU runs to its end on the real one and
on a simulated one of the given name, which should be the real one's. Compared are the peaks of allocated and reserved
memory and the number of allocations. Of a program that decides by what it has computed (an agent, early stopping) the
number differs, since nothing is computed on the simulated GPU; its peaks seldom do.

Results are added to FILE, a line of JSON each, and what is there already is not run again. Exit code 0: at least nine
of ten programs agree to the byte in both peaks, 1: fewer, 2: there is no GPU here, or nothing ran on it to its end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from harness import heading, table
from program_recipes import RECIPES, Recipe
from programs import FINE, MIB, absent, keep, prepared, results, run

SIMULATED = Path(__file__).resolve().with_name("on_simulated_gpu.py")
COUNTERS = ("allocated_bytes.all.peak", "reserved_bytes.all.peak", "allocation.all.allocated")
WANTED = 0.9


def main() -> int:
    given = _parsed()
    if not torch.cuda.is_available():
        print("rehearsal_beside_gpu.py: there is no GPU that torch can use here")
        return 2
    done = results(given.out)
    recipes = [recipe.on_gpu() for recipe in RECIPES if not absent(recipe, given.checkouts)]
    wanted = [each for each in recipes if (given.only or "") in each.title and each.title not in done]
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(lambda recipe: compared(recipe, given), wanted):
            done[row["name"]] = row
            keep(row, given.out)
    rows = [row for row in done.values() if row["real"]]
    if not rows:
        print(f"rehearsal_beside_gpu.py: no program of {given.checkouts} used the GPU and ended")
        return 2
    print(heading(f"rehearsal_beside_gpu.py: {torch.cuda.get_device_name(0)}"))
    print(report(rows))
    return 0 if sum(map(agrees, rows)) >= WANTED * len(rows) else 1


def compared(recipe: Recipe, given: argparse.Namespace) -> dict[str, Any]:
    """A program on the real and the simulated GPU; without counters where it did not end or used none."""
    real = counters(recipe, given.checkouts, [])
    command = [sys.executable, str(SIMULATED), "--gpu", given.gpu, sys.executable]
    simulated = counters(recipe, given.checkouts, command) if real["counters"] else {"counters": [], "errors": ""}
    errors = [each["errors"] for each in (real, simulated)]
    return {"name": recipe.title, "real": real["counters"], "simulated": simulated["counters"], "errors": errors}


def counters(recipe: Recipe, checkouts: Path, launcher: Sequence[str]) -> dict[str, Any]:
    """Torch's counters when a program has ended."""
    with tempfile.TemporaryDirectory() as name:
        folder, file = prepared(recipe, checkouts, Path(name)), Path(name, "counters")
        watched = replace(recipe, environment={**recipe.environment, "GPU_COUNTERS_AT_END": str(file)})
        ended = run(watched, folder, launcher)
        is_whole = file.exists() and not ended.interrupted and ended.exit_code in FINE
        told = json.loads(file.read_text()) if is_whole else {}
    return {"counters": [told[key] for key in COUNTERS if key in told], "errors": "" if told else ended.errors[-300:]}


def agrees(row: Mapping[str, Any]) -> bool:
    """Whether both peaks are the same to the byte."""
    return bool(row["real"][:2] == row["simulated"][:2])


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table, and how many of them agree."""
    header = ["program", "allocated MiB", "simulated", "reserved MiB", "simulated", "allocations", "simulated"]
    lines = [_line(row) for row in rows]
    ended = [row for row in rows if row["simulated"]]
    same = sum(map(agrees, rows))
    return (
        f"{table(header, lines)}\n\n{len(ended)} of {len(rows)} ended on both; {same} agree to the byte in both peaks"
    )


def _line(row: Mapping[str, Any]) -> list[str]:
    real, simulated = row["real"], row["simulated"] or [None] * len(COUNTERS)
    cells = [row["name"]]
    for ours, theirs, is_size in zip(real, simulated, (True, True, False), strict=True):
        cells.append(f"{ours / MIB:.2f}" if is_size else str(ours))
        difference = "did not end" if theirs is None else f"{(theirs - ours) / ours:+.3%}" if ours else str(theirs)
        cells.append("same" if theirs == ours else difference)
    return cells


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, help="folder of checkouts, each under its repository's name")
    parser.add_argument("--only", help="programs whose names contain this")
    parser.add_argument("--gpu", default="h100-80gb", help="the real GPU's name, as for tbmem estimate")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at the same time")
    parser.add_argument("--out", type=Path, help="where results are kept, a line of JSON each")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
