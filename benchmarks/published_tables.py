"""Published memory of trainings beside their rehearsal: lit-gpt, BERT under transformers' Trainer, torchtitan.

    python benchmarks/published_tables.py --checkouts FOLDER [--python PYTHON] [--only WORD]

FOLDER holds clones (git clone https://github.com/OWNER/NAME FOLDER/OWNER/NAME) of the repositories in
published_cases.py: their own programs run, at the commit of the row, with stand-ins for weights, tokenizers and data. A
row whose clone is missing is skipped, and said to be. PYTHON has a CUDA build of torch, transformers, accelerate,
lightning, jsonargparse, datasets, torchdata and tiktoken. Exit code 0: each figure is within 3 %, or the table names
the cause; 1: not so, or a program failed; 2: nothing ran.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import heading, table
from published_cases import ROWS, Row
from rehearsal_truth import PROJECT, SECONDS, NotRunError, ProgramError, edit, export, torch_version

LIMIT = 0.03


@dataclass(frozen=True)
class Outcome:
    """A published figure and the one just got, in the table's unit; None: it does not fit."""

    row: Row
    new: float | None

    @property
    def difference(self) -> float | None:
        """Relative to the published figure."""
        if self.row.published is None or self.new is None:
            return None
        return self.new / self.row.published - 1

    @property
    def verdict(self) -> str:
        """That the figures agree, or that a cause is named; empty if neither."""
        agree = self.row.published == self.new if self.difference is None else abs(self.difference) <= LIMIT
        return "agrees" if agree else "cause below" if self.row.cause else ""

    @property
    def cells(self) -> list[str]:
        """A line of the table."""
        published, new = (
            "out of memory" if figure is None else f"{figure:,.2f} {self.row.table.unit_name}"
            for figure in (self.row.published, self.new)
        )
        difference = "" if self.difference is None else f"{self.difference:+.1%}"
        return [self.row.table.name, self.row.name, published, new, difference, self.verdict or "**unexplained**"]


def rehearsed(row: Row, checkouts: Path, python: str, work: Path) -> dict[str, Any]:
    """What ``tbmem rehearse --json`` says of a row; it runs in a folder of its own.

    Raises:
        NotRunError: Its clone is not here.
        ProgramError: Its program failed.
    """
    program, here = work / "program", work / "here"
    others = [work / f"other{number}" for number in range(len(row.also))]
    for folder in (program, here, *others):
        folder.mkdir()
    if row.source:
        export(row.source, checkouts, program, *row.files)
    for source, folder in zip(row.also, others, strict=True):
        export(source, checkouts, folder)
    edit(row.edits, program)
    row.prepare(here)
    ranks = ["--world-size", str(row.world)] if row.world > 1 else []
    command = [python, "-m", "tbmem", "rehearse", "--json", "--gpu", row.gpu, "--logdir", str(work / "runs"), *ranks]
    options = [option.format(program=program) for option in row.options]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(work / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    paths = os.pathsep.join(filter(None, [*map(str, others), str(PROJECT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*command, "--", str(program / row.script), *options],
        cwd=here,
        env={**os.environ, **offline, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if not done.stdout:
        raise ProgramError((done.stderr.strip().splitlines() or ["no reason is given"])[-1])
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def outcome_of(row: Row, checkouts: Path, python: str) -> Outcome:
    """Rehearse one row."""
    with tempfile.TemporaryDirectory() as name:
        result = rehearsed(row, checkouts, python, Path(name))
    return Outcome(row, row.table.figure_of(result) if result["fits"] else None)


def outcomes_of(rows: Sequence[Row], checkouts: Path, python: str, failures: list[str]) -> list[Outcome]:
    """Rehearse those whose clones are here; what failed is added to ``failures``."""
    found = []
    for row in rows:
        label = f"{row.table.name}, {row.name}"
        try:
            outcome = outcome_of(row, checkouts, python)
        except NotRunError as error:
            print(f"skipped: {label}: {error}", file=sys.stderr)
        except (ProgramError, subprocess.TimeoutExpired) as error:
            failures.append(f"{label}: {error}")
        else:
            print(" | ".join(outcome.cells), file=sys.stderr)
            found.append(outcome)
    return found


def main() -> int:
    """Rehearse the rows, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="", help="rows whose table or name contains this")
    arguments = parser.parse_args()
    chosen = [row for row in ROWS if arguments.only in f"{row.table.name}, {row.name}"]
    failures: list[str] = []
    outcomes = outcomes_of(chosen, arguments.checkouts, arguments.python, failures)
    print(heading("published_tables.py: published memory of trainings, beside their rehearsal"))
    if outcomes:
        print(f"The programs ran with torch {torch_version(arguments.python)}.\n")
        header = ["table", "row", "published", "rehearsed", "difference", "verdict"]
        print(table(header, [outcome.cells for outcome in outcomes]))
    for one in dict.fromkeys(row.table for row in chosen):
        kind = f"{one.figure} bytes{f' and {one.context:,} of CUDA' if one.context else ''}"
        print(f"\n{one.name}: {one.page}; {kind} at most.")
    changes = {f"{row.source.repository}: {e.reason}" for row in chosen if row.source for e in row.edits}
    for change in sorted(changes):
        print(f"\nChanged in {change}.")
    for cause in dict.fromkeys(outcome.row.cause for outcome in outcomes if outcome.verdict == "cause below"):
        print(f"\nCause: {cause}.")
    print("".join(f"\nfailed: {failure}" for failure in failures))
    if not outcomes and not failures:
        return 2
    return 1 if failures or not all(outcome.verdict for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
