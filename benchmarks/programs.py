"""Public programs that nobody here wrote, run plain and under ``tbmem run``.

    python benchmarks/programs.py CHECKOUTS [--only NAME] [--faults] [--out FILE] [--jobs 2]

CHECKOUTS holds checkouts of public repositories under their names; `program_recipes.py` lists which scripts are run,
with which arguments and stand-in data (`program_data.py`). Nothing is fetched, and no file of a checkout is changed:
each run has a copy. A program whose packages are missing is left out and named. For each: the verdict and what was
reported, steps, exit codes, whether standard output is the same (times masked; of a program that is interrupted, as far
as both came), processor time and resident peak of all its processes beside those of the plain run, and the size of the
run's folder.

With ``--faults`` leaks and spikes are put into programs. The size of a leak is compared with how much more is resident
at the end of the program with it than of the sound one, both plain and after malloc has given back what is free, for
each step ("kept"). "growth" is that of the watched run's resident memory, without tbmem's own, in the second half of
its steps: the median slope between them, in which memory that is free counts.

With ``--long --together`` some programs run for about three minutes, plain and watched at the same time and in turn on
the same two cores: what a machine is slowed by then slows both, and their processor time can be compared.

Results are added to FILE, a line of JSON each, and what is there already is not run again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

from harness import environment_of_users, heading, table, take_turns_on_cores
from program_recipes import FAULTS, LONG, RECIPES, Fault, Recipe

PROJECT = Path(__file__).resolve().parent.parent
STAND_INS = Path(__file__).resolve().parent / "stand_ins"
ALARMS = ("leak", "spike", "periodic", "level_shift")
"""What must not be said of an innocent program; "growing" and the others are looked at by hand."""
TIMES = re.compile(
    r"\d+(\.\d+)?(e[-+]?\d+)?\s*(ms|sec|s|m|h|it)\b|\d+:\d\d(:\d\d)?|mfu \S+|/tmp\S+|0x[0-9a-f]+"
    r"|\b([Tt]ime|Data|iter_dt|SPS)\D*\d+(\.\d+)?(\s*\(\s*[\d.]+\))?"
)
"""What differs between two runs of anything."""
FINE = (0, -signal.SIGINT, 130)
"""Exit codes of a program that has ended, or was interrupted."""
GRACE = 60.0
"""Seconds that a program has to end after it was interrupted."""
QUIET = ("suspect", "dismissed")
TOLD = ("kind", "device", "first_step", "last_step", "message", "evidence")
MINUTE = 60.0
"""Seconds of processor time from which on a program's overhead says something."""
MIB = 1 << 20


@dataclass(frozen=True)
class Ended:
    """One run of a program."""

    exit_code: int
    interrupted: bool
    seconds: float
    cpu_seconds: float
    """User and system, of the program and its children."""
    peak_bytes: int
    output: str
    errors: str


def main() -> int:
    given = _parsed()
    # a shell without job control starts what is in the background with SIGINT ignored, and so would all programs be
    signal.signal(signal.SIGINT, signal.default_int_handler)
    recipes = LONG if given.long else RECIPES
    if given.gpu:
        recipes = tuple(recipe.on_gpu() for recipe in recipes)
    missing = {recipe.title: absent(recipe, given.checkouts) for recipe in RECIPES}
    done = results(given.out)
    if given.faults:
        tasks = [(fault.name, partial(run_fault, fault, given)) for fault in FAULTS if not missing[fault.script]]
    else:
        tasks = [
            (f"{recipe.title} [{turn}]" if turn else recipe.title, partial(run_recipe, recipe, given))
            for turn in range(given.rounds)
            for recipe in recipes
            if not missing[recipe.title]
        ]
    tasks = [(name, task) for name, task in tasks if (given.only or "") in name and name not in done]
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, row in zip((name for name, _ in tasks), pool.map(lambda each: each[1](), tasks), strict=True):
            done[name] = {"name": name, **row}
            keep(done[name], given.out)
    shown = [row for name, row in done.items() if (given.only or "") in name]
    print(heading("programs.py: public programs" + (" with faults" if given.faults else "")))
    print(_table_of_faults(shown) if given.faults else _table_of_programs(shown))
    left_out = {name: why for name, why in missing.items() if why}
    print("\nleft out: " + ("; ".join(f"{name} ({why})" for name, why in left_out.items()) or "none"))
    return 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, help="folder of checkouts, each under its repository's name")
    parser.add_argument("--only", help="programs whose names contain this")
    parser.add_argument("--long", action="store_true", help="some of them for about three minutes")
    parser.add_argument("--faults", action="store_true", help="put leaks and spikes into programs")
    parser.add_argument("--out", type=Path, help="where results are kept, a line of JSON each")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at the same time")
    parser.add_argument("--together", action="store_true", help="plain and watched at the same time, for overhead")
    parser.add_argument("--gpu", action="store_true", help="without the arguments that keep programs from a GPU")
    parser.add_argument("--rounds", type=int, default=1, help="times each is run, plain and watched in turn")
    parser.add_argument("--config", type=Path, help="tbmem's configuration, such as configs/light.yaml")
    parser.add_argument("--keep", type=Path, help="keep the folders of the watched runs here")
    return parser.parse_args()


def results(file: Path | None) -> dict[str, dict[str, Any]]:
    if file is None or not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["name"]: row for row in rows}


def keep(row: Mapping[str, Any], file: Path | None) -> None:
    """Print a result as a line of JSON, without its findings, and add it to the file."""
    print(json.dumps({key: value for key, value in row.items() if key != "findings"}), file=sys.stderr, flush=True)
    if file:
        with file.open("a") as opened:
            opened.write(json.dumps(row) + "\n")


def absent(recipe: Recipe, checkouts: Path) -> str:
    """What a program lacks here, empty if nothing."""
    if not (checkouts / recipe.script).is_file():
        return "no such file"
    packages = [name for name in recipe.needs if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(packages)}" if packages else ""


def run_recipe(recipe: Recipe, given: argparse.Namespace) -> dict[str, Any]:
    """A program plain and watched, as a row."""

    def plain_run() -> Ended:
        with tempfile.TemporaryDirectory() as name:
            return run(recipe, prepared(recipe, given.checkouts, Path(name)), [], side=0 if given.together else None)

    def watched_run() -> tuple[Ended, dict[str, Any]]:
        with tempfile.TemporaryDirectory() as name:
            return watch(recipe, prepared(recipe, given.checkouts, Path(name)), given)

    with ThreadPoolExecutor(2 if given.together else 1) as pool:
        runs = pool.submit(plain_run), pool.submit(watched_run)
        plain, (watched, told) = runs[0].result(), runs[1].result()
    same, lines = compared(plain, watched)
    return {
        **told,
        "exit": [plain.exit_code, watched.exit_code],
        "interrupted": [plain.interrupted, watched.interrupted],
        "same": same,
        "lines": lines,
        "seconds": [round(plain.seconds, 1), round(watched.seconds, 1)],
        "cpu": [round(plain.cpu_seconds, 2), round(watched.cpu_seconds, 2)],
        # tbmem resets the kernel's own peak
        "peak": [plain.peak_bytes, max(watched.peak_bytes, told["resident_peak"])],
        "errors": plain.errors[-300:] if plain.exit_code not in FINE else "",
    }


def run_fault(fault: Fault, given: argparse.Namespace) -> dict[str, Any]:
    """A program with a fault, watched, as a row."""
    (recipe,) = [each for each in RECIPES if each.title == fault.script]
    with tempfile.TemporaryDirectory() as name:
        folder = prepared(recipe, given.checkouts, Path(name), fault)
        ended, told = watch(recipe, folder, given, fault.seconds)
    kept = None
    if fault.kind == "leak":
        with_it, without = (resident_at_end(recipe, given.checkouts, each, fault.seconds) for each in (fault, None))
        kept = (with_it - without) / told["steps"] if with_it and without and told["steps"] else None
    findings = [finding for finding in told["findings"] if finding["kind"] == fault.kind]
    evidence = [finding["evidence"] for finding in findings]
    rates = [rate for each in evidence if (rate := each.get("bytes_per_step"))]
    return {
        **told,
        "kind": fault.kind,
        "exit": ended.exit_code,
        "interrupted": ended.interrupted,
        "found": bool(findings),
        "line": any(fault.line in text for each in evidence for text in _texts(each)),
        "holder": any(fault.holder in str(each.get("holder")) for each in evidence),
        "rate": rates[-1] if rates else None,
        "kept": kept,
        "errors": ended.errors[-300:] if ended.exit_code not in FINE else "",
    }


def resident_at_end(recipe: Recipe, checkouts: Path, fault: Fault | None, seconds: float) -> int | None:
    """Bytes that are resident at a plain program's end, without what is free; ``None`` if it did not end by itself."""
    with tempfile.TemporaryDirectory() as name:
        folder, file = prepared(recipe, checkouts, Path(name), fault), Path(name, "resident")
        measured = replace(recipe, environment={**recipe.environment, "RESIDENT_AT_END": str(file)})
        ended = run(measured, folder, [], seconds)
        return int(file.read_text()) if file.exists() and not ended.interrupted else None


def _texts(evidence: Mapping[str, Any]) -> Iterator[str]:
    """The lines that a finding names."""
    for key in ("line", "lines", "stack"):
        lines = evidence.get(key) or ()
        for line in [lines] if isinstance(lines, dict) else lines:
            yield str(line.get("text", "")) if isinstance(line, dict) else str(line)


def _with_fault(source: str, fault: Fault) -> str:
    """The program's text with the fault; whole lines keep their indentation."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if fault.old in line:
            indent = line[: len(line) - len(line.lstrip())]
            new = line.replace(fault.old, fault.new).splitlines()
            lines[number : number + 1] = [new[0], *(indent + each for each in new[1:])]
            # imports from the future must come first
            at = max((i + 1 for i, each in enumerate(lines) if each.startswith("from __future__")), default=0)
            return "\n".join([*lines[:at], *fault.top.splitlines(), *lines[at:]]) + "\n"
    raise SystemExit(f"{fault.name}: no {fault.old!r} in {fault.script}")


def prepared(recipe: Recipe, checkouts: Path, place: Path, fault: Fault | None = None) -> Path:
    """A copy of the repository with its data, and a fault: the script's folder in it."""
    repository = Path(recipe.script).parts[0]
    shutil.copytree(checkouts / repository, place / repository, ignore=shutil.ignore_patterns("*.gif", "*.ipynb"))
    folder = (place / recipe.script).parent
    for name, make in recipe.data.items():
        target = (folder / name).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        make(target)
    if fault is not None:
        file = folder / (fault.file or Path(recipe.script).name)
        file.write_text(_with_fault(file.read_text(), fault))
    return folder


def under_tbmem(logs: Path, config: Path | None) -> list[str]:
    """The words before a script that put it under ``tbmem run``."""
    options = ["--config", str(config.resolve())] if config else []
    return [str(Path(sys.executable).with_name("tbmem")), "run", *options, "--logdir", str(logs), "--"]


def watch(
    recipe: Recipe, folder: Path, given: argparse.Namespace, seconds: float | None = None
) -> tuple[Ended, dict[str, Any]]:
    """Run a program under ``tbmem run``: how it ended, and what was told of it."""
    logs = folder / "tbmem_runs"
    command = under_tbmem(logs, given.config)
    ended = run(recipe, folder, command, seconds, side=1 if given.together else None)
    told = read_run(logs)
    told["folder"] = sum(file.stat().st_size for file in logs.rglob("*") if file.is_file())
    told["said"] = [line for line in ended.errors.splitlines() if " tbmem " in line][-12:]
    if given.keep and logs.exists():
        shutil.copytree(logs, given.keep / recipe.title.replace("/", "_"), dirs_exist_ok=True)
    return ended, told


def run(
    recipe: Recipe, folder: Path, before: Sequence[str], seconds: float | None = None, side: int | None = None
) -> Ended:
    """Run a program to its end, or interrupt it after its seconds; with a ``side`` it takes turns on cores."""
    launcher = list(before) or [sys.executable]
    command = [*launcher, Path(recipe.script).name, *shlex.split(recipe.arguments)]
    paths = [*filter(None, recipe.environment.get("PYTHONPATH", "").split(os.pathsep)), str(STAND_INS)]
    environment = {**environment_of_users(), "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", **recipe.environment}
    environment["PYTHONPATH"] = os.pathsep.join([*paths, str(PROJECT)])
    began = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        interrupted, (status, usage) = _waited(process, began + (seconds or recipe.seconds), side)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Ended(
        exit_code=os.waitstatus_to_exitcode(status),
        interrupted=interrupted,
        seconds=time.monotonic() - began,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
        output=texts[0],
        errors=texts[1],
    )


def _waited(process: subprocess.Popen[bytes], until: float, side: int | None) -> tuple[bool, tuple[int, Any]]:
    """Whether a process was interrupted, its status and what it used; whatever it started is killed."""
    interrupted = killed = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            _signal(process.pid, signal.SIGKILL)
            return interrupted, (status, usage)
        now = time.monotonic()
        if now > until and not interrupted:
            interrupted = True
            _signal(process.pid, signal.SIGINT)
        elif now > until + GRACE and not killed:
            killed = True
            _signal(process.pid, signal.SIGKILL)
        if side is not None:
            take_turns_on_cores(process.pid, side)
        time.sleep(0.05 if side is None else 0.5)


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def read_run(logs: Path) -> dict[str, Any]:
    """What the live log tells: verdicts, findings, steps, and how fast the resident memory grew (bytes a step)."""
    findings: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    levels: dict[int, int] = {}
    steps = peak = 0
    for record in _records(logs):
        if record["type"] == "finding" and record["kind"] not in QUIET:
            findings.append(record)
        elif record["type"] == "samples" and record.get("host_rss"):
            peak = max(peak, record.get("host_peak_rss") or record["host_rss"])
            steps = max(steps, record["step"])
            levels[record["step"]] = record["host_rss"] - (record.get("host_own") or 0)
        elif record["type"] == "end":
            verdicts += record["verdicts"]
            steps = max(steps, record["steps"])
    told = [{key: each[key] for key in TOLD} for each in (*findings, *verdicts)]
    return {
        "verdicts": [verdict["kind"] for verdict in verdicts],
        "alarms": sorted({each["kind"] for each in told} - {"stable"}),
        "messages": [f"{each['kind']}: {each['message']}" for each in told],
        "findings": told,
        "steps": steps,
        "resident_peak": peak,
        "growth": growth(levels),
    }


def growth(levels: Mapping[int, int]) -> float | None:
    """Bytes a step by which a level rises in the second half of a run: the median slope (Theil and Sen)."""
    rows = sorted(levels.items())
    rows = rows[len(rows) // 2 :: max(len(rows) // 1000, 1)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(rows, 2)]
    return statistics.median(slopes) if slopes else None


def _records(logs: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(logs.rglob("monitor*.jsonl")):
        for line in file.read_text().splitlines():
            yield json.loads(line)


def compared(plain: Ended, watched: Ended) -> tuple[bool, int]:
    """Whether two runs printed the same, as far as both came, and how many lines that are."""
    ours, theirs = (TIMES.sub("#", ended.output).splitlines() for ended in (plain, watched))
    if plain.interrupted or watched.interrupted:
        shared = max(min(len(ours), len(theirs)) - 1, 0)
        ours, theirs = ours[:shared], theirs[:shared]
    same = sum(a == b for a, b in zip_longest(ours, theirs))
    return same == max(len(ours), len(theirs)), same


def _table_of_programs(rows: Sequence[Mapping[str, Any]]) -> str:
    header = ["program", "steps", "verdict", "also said", "exit codes", "output", "CPU s", "tbmem adds", "peak MiB"]
    header += ["more", "folder MiB"]
    said = [row["name"] for row in rows if set(row["alarms"]) & set(ALARMS)]
    ended = [row for row in rows if not any(row["interrupted"])]
    shares = [row["cpu"][1] / row["cpu"][0] - 1 for row in ended if row["cpu"][0] >= 0.9 * MINUTE]
    ends = [
        f"{len(rows)} programs; with {', '.join(ALARMS)}: {len(said)} ({', '.join(said)})",
        f"other exit code: {[row['name'] for row in rows if row['exit'][0] != row['exit'][1]]}",
        f"other output: {[row['name'] for row in rows if not row['same']]}",
    ]
    if shares:
        figures = f"median {statistics.median(shares):.1%}, most {max(shares):.1%}"
        ends.append(f"processor time that tbmem adds to {len(shares)} programs of about a minute or more: {figures}")
    return "\n\n".join([table(header, [_program_line(row) for row in rows]), *ends])


def _program_line(row: Mapping[str, Any]) -> list[str]:
    plain, watched = row["cpu"]
    is_whole = not any(row["interrupted"])
    others = [each for each in row["alarms"] if each not in row["verdicts"]]
    return [
        row["name"],
        str(row["steps"]),
        ", ".join(dict.fromkeys(row["verdicts"])) or "none",
        ", ".join(others) or "-",
        "{} {}".format(*row["exit"]) + ("" if is_whole else " (interrupted)"),
        f"same, {row['lines']} lines" if row["same"] else "differs",
        f"{plain:.1f}",
        f"{watched / plain - 1:+.0%}" if is_whole else "-",
        f"{row['peak'][0] / MIB:.0f}",
        f"{(row['peak'][1] - row['peak'][0]) / MIB:+.0f}",
        f"{row['folder'] / MIB:.1f}",
    ]


def _table_of_faults(rows: Sequence[Mapping[str, Any]]) -> str:
    header = ["fault", "kind", "steps", "found", "line", "holder", "bytes a step", "kept", "ratio", "growth"]
    return table(header, [_fault_line(row) for row in rows])


def _fault_line(row: Mapping[str, Any]) -> list[str]:
    rate, kept, growth = row["rate"], row["kept"], row["growth"]
    return [
        row["name"],
        row["kind"],
        str(row["steps"]),
        *("yes" if row[key] else "no" for key in ("found", "line", "holder")),
        f"{rate:.0f}" if rate else "-",
        f"{kept:.0f}" if kept else "-",
        f"{rate / kept:.2f}" if rate and kept else "-",
        f"{growth:.0f}" if growth else "-",
    ]


if __name__ == "__main__":
    sys.exit(main())
