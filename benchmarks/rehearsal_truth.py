"""Rehearsals against real GPUs: public programs on the simulated GPU, beside the snapshots that their authors made.

    python benchmarks/rehearsal_truth.py --checkouts FOLDER [--python PYTHON] [--only WORD]

FOLDER holds clones (git clone https://github.com/OWNER/NAME FOLDER/OWNER/NAME) of the repositories in
rehearsal_cases.py; program and snapshot are taken from there, at the commit of the case. A case whose clone is missing
is skipped, and said to be. The programs run with PYTHON, whose torch must be a CUDA build, and need einops, einx,
jaxtyping and pandas; to see what another version of torch changes, name a Python that has it. tbmem's own reader reads
both snapshots. Exit code 0: each peak is within 0.05 % and each reserved size within 0.1 %, or the table names the
cause; 1: not so, or a program failed; 2: nothing ran.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import numpy as np
import psutil
from harness import heading, table
from rehearsal_cases import CASES, PACKAGES, Case, Edit, Source

from tbmem.model.timeline import AllocationTimeline
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.units import GIB

PROJECT = Path(__file__).parent.parent
PEAK_LIMIT, RESERVED_LIMIT = 0.0005, 0.001
SECONDS = 600
_ENVIRONMENT = """
import json, sys
from tbmem.model.gpus import gpu_named
from tbmem.rehearsal.environment import rehearsal_environment
print(json.dumps(rehearsal_environment(gpu_named(sys.argv[1]))))
"""


class NotRunError(Exception):
    """Something that a case needs is not here."""


class ProgramError(Exception):
    """The program of a case failed."""


@dataclass(frozen=True)
class Figures:
    """What a snapshot says of its first GPU; bytes."""

    allocations: int
    start: int  # requested bytes before the first event
    peak: int  # requested bytes
    reserved: int  # at most
    at_end: int  # allocated bytes, rounded as the allocator does

    @classmethod
    def of(cls, timeline: AllocationTimeline) -> Figures:
        """Those of a recording that says what was reserved."""
        device, reserved = timeline.devices[0], timeline.peak_reserved(0)
        assert reserved is not None
        assert device.allocated_bytes is not None
        return cls(device.allocs, device.base_bytes, timeline.peak(0).bytes, reserved.bytes, device.allocated_bytes)


@dataclass(frozen=True)
class Outcome:
    """The recording of a real GPU and the one just made."""

    case: Case
    torch: str
    real: Figures
    new: Figures
    difference: str

    @property
    def verdict(self) -> str:
        """Equal, within the limits, or the kind of cause of what is beyond them; empty if none is known."""
        if self.real == self.new:
            return "equal"
        if (
            _off(self.real.peak, self.new.peak) <= PEAK_LIMIT
            and _off(self.real.reserved, self.new.reserved) <= RESERVED_LIMIT
        ):
            return "within limits"
        if self.torch != self.case.torch and self.case.other_torch:
            return "another torch"
        return "cause below" if self.case.cause else ""

    @property
    def remarks(self) -> str:
        """Why figures differ, and where the sequences of allocations part."""
        reason = {"another torch": self.case.other_torch, "cause below": self.case.cause}.get(self.verdict, "")
        parted = f"allocations: {self.difference}" if self.difference else ""
        return "; ".join(filter(None, (reason, parted)))


def _off(real: int, new: int) -> float:
    return abs(new / real - 1)


def sizes(timeline: AllocationTimeline) -> list[int]:
    """Requested bytes of the first GPU's allocations, in their order."""
    rows = timeline.rows.take((timeline.rows.device == 0) & (timeline.rows.alloc_event >= 0))
    return [int(size) for size in rows.bytes[np.argsort(rows.alloc_event, kind="stable")]]


def first_difference(real: Sequence[int], new: Sequence[int]) -> str:
    """Where two sequences of allocations part, in words; empty if they are equal."""
    steps = SequenceMatcher(None, real, new, autojunk=False).get_opcodes()
    changes = [step for step in steps if step[0] != "equal"]
    if not changes:
        return ""
    _, a, b, c, d = changes[0]
    fewer, more = sum(step[2] - step[1] for step in changes), sum(step[4] - step[3] for step in changes)
    return f"{more} more, {fewer} fewer; after {a:,} equal ones {_few(real[a:b])} became {_few(new[c:d])}"


def _few(numbers: Sequence[int]) -> str:
    shown = [f"{number:,}" for number in numbers[:6]] + ["…"] * (len(numbers) > 6)
    return f"[{'; '.join(shown)}]"


@cache
def device_environment(python: str, gpu: str) -> dict[str, str]:
    """Variables with which the programs of a Python see a simulated GPU; its device is built if it is not there."""
    paths = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    here = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([python, "-c", _ENVIRONMENT, gpu], env=here, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRunError((done.stderr.strip().splitlines() or ["the device cannot be built"])[-1])
    environment: dict[str, str] = json.loads(done.stdout)
    return environment


@cache
def torch_version(python: str) -> str:
    """As its package names it, without the build: ``'2.14.1'``."""
    code = "from importlib.metadata import version; print(version('torch').split('+')[0])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def clone_of(source: Source, checkouts: Path) -> Path:
    """Folder of a repository's clone."""
    clone = checkouts / source.repository
    if not clone.is_dir():
        raise NotRunError(f"no clone at {clone}")
    return clone


def export(source: Source, checkouts: Path, folder: Path, *more: str) -> None:
    """Copy the Python files of a commit, and those of more patterns."""
    command = ["git", "archive", "--format=tar", source.commit, "--", "*.py", *more]
    done = subprocess.run(command, cwd=clone_of(source, checkouts), capture_output=True, check=False)
    if done.returncode:
        raise NotRunError(f"{source}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def edit(edits: Sequence[Edit], folder: Path) -> None:
    """Make the changes that a case names."""
    for change in edits:
        path = folder / change.file
        text = path.read_text(encoding="utf-8")
        if change.old not in text:
            raise ProgramError(f"{change.file} does not contain {change.old!r}")
        path.write_text(text.replace(change.old, change.new), encoding="utf-8")


def real_snapshot(case: Case, checkouts: Path, folder: Path) -> AllocationTimeline:
    """The author's recording, from the clone."""
    command = ["git", "show", f"{case.source.commit}:{case.snapshot}"]
    done = subprocess.run(command, cwd=clone_of(case.source, checkouts), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        raise NotRunError(f"{case.source}: its clone has no {case.snapshot}")
    path = folder / "real.pickle"
    path.write_bytes(done.stdout)
    return read_snapshot(path)


def run(case: Case, checkouts: Path, python: str, work: Path) -> AllocationTimeline:
    """Run the program in a folder of its own; what it recorded."""
    if psutil.virtual_memory().available < case.host_gib * GIB:
        raise NotRunError(f"the program needs {case.host_gib} GiB of the host's memory")
    main = work / "main"
    others = [work / f"other{number}" for number in range(len(case.also))]
    for source, folder in zip((case.source, *case.also), (main, *others), strict=True):
        export(source, checkouts, folder)
    edit(case.edits, main)
    for package in PACKAGES:
        about = work / f"{package}-0.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0\n", encoding="utf-8")
    here = work / "run"
    written = here / case.writes
    for folder in (here, written.parent):
        folder.mkdir(parents=True, exist_ok=True)
    environment = device_environment(python, case.gpu)
    paths = [*(str(main / path) for path in case.paths), *map(str, others), str(work), environment["PYTHONPATH"]]
    done = subprocess.run(
        [python, str(main / case.script), *case.options],
        cwd=here,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if not written.exists():
        raise ProgramError((done.stderr.strip().splitlines() or ["no snapshot was written"])[-1])
    return read_snapshot(written)


def outcome_of(case: Case, checkouts: Path, python: str) -> Outcome:
    """Run one case.

    Raises:
        NotRunError: Something that it needs is not here.
        ProgramError: Its program failed.
    """
    with tempfile.TemporaryDirectory() as name:
        real = real_snapshot(case, checkouts, Path(name))
        new = run(case, checkouts, python, Path(name))
    difference = first_difference(sizes(real), sizes(new))
    return Outcome(case, torch_version(python), Figures.of(real), Figures.of(new), difference)


def row(outcome: Outcome) -> list[str]:
    """A line of the table: a figure, or two that differ."""
    pairs = zip(astuple(outcome.real), astuple(outcome.new), strict=True)
    figures = [
        f"{real:,}" if real == new else f"{real:,} → {new:,}{f' ({new / real - 1:+.3%})' if real else ''}"
        for real, new in pairs
    ]
    return [
        str(outcome.case.source),
        outcome.case.name,
        outcome.case.torch,
        *figures,
        outcome.verdict or "**unexplained**",
    ]


def _outcomes(cases: Sequence[Case], checkouts: Path, python: str, failures: list[str]) -> Iterator[Outcome]:
    for case in cases:
        label = f"{case.source}, {case.name}"
        try:
            outcome = outcome_of(case, checkouts, python)
        except NotRunError as error:
            print(f"skipped: {label}: {error}", file=sys.stderr)
        except (ProgramError, subprocess.TimeoutExpired) as error:
            failures.append(f"{label}: {error}")
        else:
            print(f"{label}: {outcome.verdict or 'unexplained'}", file=sys.stderr)
            yield outcome


def main() -> int:
    """Run the cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="", help="cases whose repository or name contains this")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if arguments.only in f"{case.source} {case.name}"]
    failures: list[str] = []
    outcomes = list(_outcomes(chosen, arguments.checkouts, arguments.python, failures))
    print(heading("rehearsal_truth.py: real recordings, made again on a simulated GPU"))
    if outcomes:
        print(f"The programs ran with torch {torch_version(arguments.python)}.\n")
        columns = [field.name.replace("_", " ") for field in fields(Figures)]
        print(table(["program", "recording", "its torch", *columns, "verdict"], [row(outcome) for outcome in outcomes]))
    for change in sorted({f"{c.source}, {e.file}: {e.reason}" for c in chosen for e in c.edits}):
        print(f"\nChanged in the program: {change}.")
    for remarks in dict.fromkeys(outcome.remarks for outcome in outcomes if outcome.remarks):
        names = [f"{one.case.source}, {one.case.name}" for one in outcomes if one.remarks == remarks]
        print(f"\n{' and '.join(names)}: {remarks}.")
    print("".join(f"\nfailed: {failure}" for failure in failures))
    if not outcomes and not failures:
        return 2
    return 1 if failures or not all(outcome.verdict for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
