"""Attacks tbmem for some minutes: damaged and hostile files, requests to the tab, faults during a run.

Run as ``python benchmarks/attack.py --minutes 10``. Prints how often each kind of attack got one clear line or a
plausible answer, and how often a traceback, a hang or a crash; then the exit code is 1, and bad ones are listed with
the command that repeats them. All is derived from ``--seed``; how much fits into the time differs between machines.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pickle
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack_faults import faults, run_fault
from attack_files import PROJECT, make_victims
from attack_hostile import bombs
from attack_probes import CLEAR, CRASH, HANG, PLAUSIBLE, TRACEBACK
from attack_readers import KINDS, MEMORY
from rich.console import Console
from rich.table import Table

OUTCOMES = (CLEAR, PLAUSIBLE, TRACEBACK, HANG, CRASH)
BAD = (TRACEBACK, HANG, CRASH)
CORPUS = Path(os.environ.get("TBMEM_CORPUS", PROJECT.parent / "shared" / "corpus"))
FAULTS = "faults during a run"
WEIGHTS = {"truncated files": 12, "mutated bytes": 12, "mutated records": 20, "queries of the tab": 4, FAULTS: 2}
"""How often each kind comes in a round; the others once."""
SECONDS = 20.0
"""Time that a reader may take for a file of a few MB on a busy machine."""
ATTACKS_OF_A_WORKER = 300
"""Then it is replaced, so that what it has cached does not count as the memory of a probe."""


@dataclass
class Bad:
    """The first of the bad outcomes that are alike."""

    kind: str
    number: int
    probe: str
    outcome: str
    detail: str
    times: int = 1


@dataclass
class Tally:
    """Outcomes by kind of attack, and the bad ones."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    bad: dict[tuple[str, str, str], Bad] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, number: int, probe: str, outcome: str, detail: str) -> None:
        """Count an outcome; bad ones are alike if what was asked and where it failed are the same."""
        with self.lock:
            self.counts[kind][outcome] += 1
            if outcome not in BAD:
                return
            alike = kind if kind != FAULTS else f"{kind} {probe}", outcome, _place(probe, detail)
            if alike in self.bad:
                self.bad[alike].times += 1
            else:
                self.bad[alike] = Bad(kind, number, probe, outcome, detail)

    @property
    def failed(self) -> bool:
        """Whether anything bad happened."""
        return bool(self.bad)


def _place(probe: str, detail: str) -> str:
    """Where it failed: the line of tbmem if it is known, else what was asked."""
    return detail.rpartition(" at ")[2] if " at " in detail else " ".join(probe.split("?")[0].split()[:2])


class ReaderProcess:
    """A worker that is asked for attacks one after the other, and replaced when it dies, hangs or is old."""

    def __init__(self, folder: Path, seed: str, seconds: float, memory: int) -> None:
        self._command = [sys.executable, str(PROJECT / "benchmarks/attack_readers.py"), str(folder), seed, str(memory)]
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reading: threading.Thread | None = None
        self._asked = 0

    def attack(self, kind: str, number: int) -> Iterator[tuple[str, str, str]]:
        """Run one attack; yields what was asked, the outcome and its detail for each probe."""
        process = self._running()
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: its answers end as well
            process.stdin.write(json.dumps({"kind": kind, "number": number}) + "\n")
            process.stdin.flush()
        probe, self._asked = "starting", self._asked + 1
        while True:
            try:
                answer = self._answers.get(timeout=self._seconds * _patience(probe))
            except queue.Empty:
                yield probe, HANG, f"no answer in {self._seconds:g} s"
                self.close()
                return
            if answer is None:
                code = process.wait()
                yield probe, CRASH, f"the process ended with {code}"
                self.close()
                return
            if "done" in answer:
                break
            if "outcome" in answer:
                yield probe, answer["outcome"], answer["detail"]
                if answer["outcome"] == CRASH:  # what the memory is like then is not known
                    self._asked = ATTACKS_OF_A_WORKER
            else:
                probe = answer["probe"]
        if self._asked >= ATTACKS_OF_A_WORKER:
            self.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "PYTHONPATH": str(PROJECT)}
            environment.pop("GITHUB_ACTIONS", None)
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
            )
            self._answers, self._asked = queue.Queue(), 0
            self._reading = threading.Thread(target=_read_lines, args=(self._process, self._answers), daemon=True)
            self._reading.start()
        return self._process

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            if self._reading is not None:
                self._reading.join()


def _patience(probe: str) -> int:
    """How many times longer than a reader something may take: it imports much, torch for estimates."""
    return 4 if probe == "starting" or probe.startswith("tbmem estimate") else 1


def _read_lines(process: subprocess.Popen[str], answers: queue.Queue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if line.endswith("\n"):  # not the half of one that dies
                answers.put(json.loads(line))
    answers.put(None)


def schedule(only: str | None = None, number: int | None = None) -> Iterator[tuple[str, int]]:
    """Kinds and numbers of attacks without end, or the one that is to be repeated."""
    if number is not None:
        return iter([(str(only), number)])
    kinds = [only] if only is not None else [*KINDS, FAULTS]
    numbers = {kind: itertools.count() for kind in kinds}
    rounds = [kind for turn in range(max(WEIGHTS.values())) for kind in kinds if turn < WEIGHTS.get(kind, 1)]
    return ((kind, next(numbers[kind])) for kind in itertools.cycle(rounds))


class Attack:
    """A run of attacks by several threads, each with a worker process."""

    def __init__(self, folder: Path, seed: str, seconds: float, memory: int) -> None:
        self.tally = Tally()
        self._folder, self._seed, self._seconds, self._memory = folder, seed, seconds, memory
        self._lock = threading.Lock()

    def run(self, jobs: Iterator[tuple[str, int]], workers: int, until: float) -> Tally:
        """Attack until a time of ``time.monotonic()``, or until there are no more jobs."""
        threads = [threading.Thread(target=self._work, args=(jobs, until)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.tally

    def _work(self, jobs: Iterator[tuple[str, int]], until: float) -> None:
        readers = ReaderProcess(self._folder, self._seed, self._seconds, self._memory)
        try:
            while time.monotonic() < until:
                with self._lock:
                    job = next(jobs, None)
                if job is None:
                    return
                self._one(readers, *job)
        finally:
            readers.close()

    def _one(self, readers: ReaderProcess, kind: str, number: int) -> None:
        if kind == FAULTS:
            fault = run_fault(number, self._folder, self._seed)
            self.tally.add(kind, number, fault.what, fault.outcome, fault.detail)
            return
        for probe, outcome, detail in readers.attack(kind, number):
            self.tally.add(kind, number, probe, outcome, detail)


def prepare(folder: Path, corpus: Path | None) -> None:
    """Make the sound files, and store what workers read."""
    sound = folder / "sound"
    sound.mkdir()
    victims = make_victims(sound, corpus)
    (folder / "bombs.pickle").write_bytes(pickle.dumps(bombs()))
    (folder / "victims.pickle").write_bytes(pickle.dumps(victims))


def table_of(tally: Tally) -> Table:
    """Kinds of attack and their outcomes."""
    table = Table(title="tbmem under attack", title_justify="left")
    table.add_column("attack")
    for name in ("tried", *OUTCOMES):
        table.add_column(name, justify="right", style="red" if name in BAD else "")
    for kind in [*KINDS, FAULTS]:
        counts = tally.counts.get(kind)
        if counts:
            table.add_row(kind, str(counts.total()), *(str(counts[outcome]) for outcome in OUTCOMES))
    total: Counter[str] = sum(tally.counts.values(), Counter())
    table.add_section()
    table.add_row("all", str(total.total()), *(str(total[outcome]) for outcome in OUTCOMES))
    return table


def lines_of(bad: Bad, options: str) -> list[str]:
    """A bad outcome, and the command that repeats it."""
    often = f" ({bad.times} times)" if bad.times > 1 else ""
    again = f"python benchmarks/attack.py {options} --only {bad.kind!r} --number {bad.number}"
    return [f"{bad.outcome}{often}: {bad.kind}: {bad.probe}", f"    {bad.detail}", f"    {again}"]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to attack, without the preparation")
    parser.add_argument("--seed", default="0", help="what all attacks are derived from")
    parser.add_argument("--corpus", type=Path, nargs="?", const=CORPUS, help="also damage recordings of this folder")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="attacks at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time of a probe after which it hangs")
    parser.add_argument("--memory", type=int, default=MEMORY >> 20, metavar="MIB", help="memory that a probe may add")
    parser.add_argument("--only", choices=[*KINDS, FAULTS], help="attacks of one kind")
    parser.add_argument("--number", type=int, help="with --only: one attack")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder of the sound files, kept for exact repeats")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Attack, print the table, and return the exit code."""
    given = arguments(words)
    folder = given.keep or Path(tempfile.mkdtemp(prefix="tbmem-attack-"))
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        if not (folder / "victims.pickle").exists():
            folder.mkdir(parents=True, exist_ok=True)
            prepare(folder, given.corpus)
        attack = Attack(folder, given.seed, given.seconds, given.memory << 20)
        began = time.monotonic()
        until = began + 60 * given.minutes
        tally = attack.run(schedule(given.only, given.number), given.workers, until)
        console.print(table_of(tally))
        seconds = time.monotonic() - began
        console.print(
            f"seed {given.seed} · {seconds:.0f} s · {given.workers} at a time · {len(faults())} faults", highlight=False
        )
        options = f"--seed {given.seed}" + (f" --corpus {given.corpus}" if given.corpus else "")
        for bad in tally.bad.values():
            console.print("\n".join(lines_of(bad, options)), markup=False, highlight=False, soft_wrap=True)
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
