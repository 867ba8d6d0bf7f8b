"""How tbmem judges a folder of small trainings, leaking, spiking and innocent, each in a process of its own.

    python benchmarks/verdicts.py --loops DIR [--steps 300] [--json] [--repeat N] [--jobs N] [--device cuda]

A loop file has make(), which returns step(i) (with an optional step.close), and says the truth about itself: LABEL
(leak, spike, stable), ACCEPT (verdicts that are defensible), LEAK_LINE (text of the line at fault), SOURCE, and, if
it likes, ONSET (step at which it begins, 0 if it does not say; a run that ends before may be called stable as well).
It runs under MemoryCallback in the default configuration, and once more without tbmem, for the overhead. Files whose
names begin with an underscore are left out.

Exit status: 0 if all is well, 1 if a leak was missed, an innocent loop was accused or a loop crashed, 2 on wrong input.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import heading, table

VERDICTS = ("leak", "spike", "stable")
FAILURES = ("crash", "timeout")
"""What stands in a verdict's place where the loop did not come to its end."""


class WrongInput(Exception):
    """The folder, or a file in it, is not what it should be."""


@dataclass(frozen=True)
class Loop:
    """A loop file and the truth about it."""

    path: Path
    label: str
    accept: tuple[str, ...]
    leak_line: str
    source: str
    onset: int

    @property
    def must_be_found(self) -> bool:
        """Whether no other verdict than a leak will do."""
        return self.label == "leak" and "stable" not in self.accept

    def within(self, steps: int) -> Loop:
        """The truth about the first ``steps`` steps: before the onset there is nothing to be found."""
        if self.onset < steps or "stable" in self.accept:
            return self
        return replace(self, accept=(*self.accept, "stable"))


def read_loops(folder: Path) -> list[Loop]:
    """The loops of a folder, by name."""
    if not folder.is_dir():
        raise WrongInput(f"no such folder: {folder}")
    paths = sorted(path for path in folder.resolve().glob("*.py") if not path.name.startswith("_"))
    if not paths:
        raise WrongInput(f"no loops (*.py) in {folder}")
    return [read_loop(path) for path in paths]


def read_loop(path: Path) -> Loop:
    """The truth that a file tells about itself, read without running it."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        values = dict(_constants(tree))
    except (OSError, SyntaxError, ValueError) as error:
        raise WrongInput(f"{path.name}: {error}") from error
    label = values.get("LABEL")
    accept = values.get("ACCEPT", label)
    accept = (accept,) if isinstance(accept, str) else tuple(accept or ())
    if label not in VERDICTS or not accept or not set(accept) <= set(VERDICTS):
        raise WrongInput(f"{path.name}: LABEL and ACCEPT must be of {', '.join(VERDICTS)} (got {label!r}, {accept!r})")
    if not any(isinstance(node, ast.FunctionDef) and node.name == "make" for node in tree.body):
        raise WrongInput(f"{path.name}: no function make()")
    line, source = str(values.get("LEAK_LINE", "")).strip(), str(values.get("SOURCE", ""))
    return Loop(path, label, accept, line, source, int(values.get("ONSET", 0)))


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    names = ("LABEL", "ACCEPT", "LEAK_LINE", "SOURCE", "ONSET")
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            yield node.targets[0].id, ast.literal_eval(node.value)


def run(loop: Loop, given: argparse.Namespace, watched: bool) -> dict[str, Any]:
    """Run a loop in its own process: what run_loop.py tells, or ``failure`` and ``error``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result, output = folder / "result.json", folder / "output.txt"
        command = [sys.executable, str(Path(__file__).with_name("run_loop.py")), str(loop.path)]
        command += ["--steps", str(given.steps), "--result", str(result)]
        command += ["--logdir", str(folder / "runs")] if watched else []
        command += ["--device", given.device] if given.device else []
        ended = _run_process(command, output, given.limit)
        if ended == 0 and result.is_file():
            told: dict[str, Any] = json.loads(result.read_text())
            return told
        last = output.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
    if ended is None:
        return {"failure": "timeout", "error": f"not done after {given.limit:g} s"}
    return {"failure": "crash", "error": f"exit status {ended}: {last[0]}"}


def _run_process(command: Sequence[str], output: Path, limit: float) -> int | None:
    """Exit status of a command, ``None`` if it took too long; whatever it started ends with it."""
    project = str(Path(__file__).resolve().parent.parent)
    paths = [project, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with output.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # nobody is left of the group, as it should be
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def judge(loop: Loop, told: Mapping[str, Any]) -> dict[str, Any]:
    """One run of a loop against the truth: a row of the result."""
    failure = told.get("failure")
    verdict = failure or overall_verdict(finding["kind"] for finding in told["verdicts"])
    said = [*told.get("findings", ()), *told.get("verdicts", ())]
    ours = [finding for finding in said if finding["kind"] == verdict]
    leaks = [finding for finding in ours if verdict == "leak"]
    lines = [line for finding in leaks for line in named_lines(finding["evidence"], loop.path.parent)]
    confirmed = _first(leaks, "confirmed_step")
    return {
        "name": loop.path.stem,
        "label": loop.label,
        "accept": list(loop.accept),
        "verdict": verdict,
        "correct": verdict in loop.accept,
        "line_named": bool(leaks and loop.leak_line) and any(loop.leak_line in line for line in lines),
        "holder": _first(leaks, "holder"),
        "suspected_step": _first(leaks, "suspected_step"),
        "confirmed_step": confirmed,
        "onset": loop.onset,
        "delay": confirmed - loop.onset if confirmed is not None else None,
        "first_said_step": min((finding["last_step"] for finding in ours if verdict != "stable"), default=None),
        "lines": list(dict.fromkeys(lines)),
        "kinds_said": sorted({finding["kind"] for finding in said}),
        "message": next((finding["message"] for finding in [*reversed(ours), *said]), ""),
        "problems": list(told.get("problems", ())),
        "error": told.get("error", ""),
    }


def overall_verdict(kinds: Iterable[str]) -> str:
    """The gravest of the verdicts on a run's devices and channels."""
    seen = set(kinds)
    return next((kind for kind in ("leak", "spike") if kind in seen), "stable")


def named_lines(evidence: Mapping[str, Any], folder: Path) -> list[str]:
    """Text of the lines that a finding names, those of files in ``folder`` only."""
    lines = [evidence.get("line"), *(evidence.get("lines") or ())]
    return [
        str(line.get("text", "")).strip()
        for line in lines
        if isinstance(line, Mapping) and Path(str(line.get("file", ""))).resolve().parent == folder.resolve()
    ]


def _first(findings: Iterable[Mapping[str, Any]], key: str) -> Any:
    """The first value that a finding's evidence has under ``key``."""
    values = (finding["evidence"].get(key) for finding in findings)
    return next((value for value in values if value not in (None, "")), None)


def merge(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several runs of one loop as one row: the first that is wrong speaks for all."""
    worst = next((row for row in rows if not row["correct"]), rows[0])
    verdicts = [row["verdict"] for row in rows]
    return {**worst, "verdicts": verdicts, "flaky": len(set(verdicts)) > 1}


def score(loops: Sequence[Loop], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures over all loops."""
    wanted = [row for loop, row in zip(loops, rows, strict=True) if loop.must_be_found]
    found = [row for row in wanted if row["verdict"] == "leak"]
    with_line = [
        row for loop, row in zip(loops, rows, strict=True) if loop.label == row["verdict"] == "leak" and loop.leak_line
    ]
    return {
        "recall": len(found) / len(wanted) if wanted else None,
        "false_alarms": [row["name"] for row in rows if row["verdict"] in ("leak", "spike") and not row["correct"]],
        "lines_named": sum(row["line_named"] for row in with_line) / len(with_line) if with_line else None,
        "missed": [row["name"] for row in wanted if row["verdict"] != "leak"],
        "missed_spikes": [row["name"] for row in rows if row["label"] == "spike" and not row["correct"]],
        "failures": [row["name"] for row in rows if row["verdict"] in FAILURES],
        "flaky": [row["name"] for row in rows if row["flaky"]],
        "confusion": confusion(rows),
    }


def confusion(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many loops of each label got each verdict."""
    counts = Counter((row["label"], row["verdict"]) for row in rows)
    return {
        label: {verdict: counts[label, verdict] for verdict in VERDICTS + FAILURES if counts[label, verdict]}
        for label in VERDICTS
    }


def overhead(plain: Sequence[Mapping[str, Any]], watched: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What tbmem added to a loop, in seconds: medians over its runs; ``None`` if one has failed."""
    if not plain or any("failure" in told for told in (*plain, *watched)):
        return None

    def middle(runs: Sequence[Mapping[str, Any]], name: str) -> float:
        return statistics.median(float(told["seconds"][name]) for told in runs)

    return {
        "plain_mean_step": middle(plain, "mean_step"),
        "watched_mean_step": middle(watched, "mean_step"),
        "plain_median_step": middle(plain, "median_step"),
        "watched_median_step": middle(watched, "median_step"),
        "plain_total": middle(plain, "total"),
        "watched_total": middle(watched, "total"),
    }


def measure(loops: Sequence[Loop], given: argparse.Namespace) -> dict[str, Any]:
    """Run every loop, as often as asked, and judge it."""

    def one(loop: Loop) -> dict[str, Any]:
        watched = [run(loop, given, watched=True) for _ in range(given.repeat)]
        failed = any("failure" in told for told in watched)
        times = 0 if failed or not given.overhead else given.repeat
        plain = [run(loop, given, watched=False) for _ in range(times)]
        row = merge([judge(loop, told) for told in watched])
        if not given.totals:
            print(f"{loop.path.stem}: {row['verdict']}", file=sys.stderr, flush=True)
        return {**row, "seconds": overhead(plain, watched)}

    with ThreadPoolExecutor(given.jobs) as pool:
        rows = list(pool.map(one, loops))
    return {"loops": rows, **score(loops, rows), "steps": given.steps, "repeat": given.repeat, "device": given.device}


def show(result: Mapping[str, Any], totals: bool) -> None:
    """Print the result as Markdown; ``totals`` names no loop."""
    rows = result["loops"]
    where = f", tensors on {result['device']}" if result["device"] else ""
    print(heading(f"verdicts.py: {len(rows)} loops, {result['steps']} steps{where}"))
    columns = [name for name in VERDICTS + FAILURES if any(row["verdict"] == name for row in rows)]
    counts = result["confusion"]
    print(table(["truth \\ verdict", *columns], [[t, *(counts[t].get(c, 0) for c in columns)] for t in VERDICTS]))
    print()
    if not totals:
        _show_loops(rows)
    for name in ("missed", "false_alarms", "missed_spikes", "failures", "flaky"):
        names = [] if totals else result[name]
        print(f"{name.replace('_', ' ')}: {len(result[name])}  {', '.join(names)}".rstrip())
    recall, lines = _percent(result["recall"]), _percent(result["lines_named"])
    print(f"recall {recall}, right line named in {lines} of the leaks found")
    late = [row["delay"] for row in rows if row["label"] == "leak" and row["delay"] is not None]
    if late:
        print(f"steps from onset to confirmation: median {statistics.median(late):g}, most {max(late)}")
    _show_overhead([row["seconds"] for row in rows if row["seconds"]])


def _show_loops(rows: Sequence[Mapping[str, Any]]) -> None:
    header = ["loop", "truth", "verdict", "", "suspected", "confirmed", "line", "holder", "ms/step alone → watched"]
    print(table(header, [_cells(row) for row in rows]))
    print()
    for row in rows:
        for trouble in filter(None, [row["error"], *row["problems"]]):
            print(f"{row['name']}: {trouble}")


def _cells(row: Mapping[str, Any]) -> list[str]:
    seconds, named = row["seconds"], row["verdict"] == "leak" and row["label"] == "leak"
    time = f"{seconds['plain_mean_step'] * 1e3:.2f} → {seconds['watched_mean_step'] * 1e3:.2f}" if seconds else "-"
    steps = ["-" if row[name] is None else str(row[name]) for name in ("suspected_step", "confirmed_step")]
    verdict = "/".join(dict.fromkeys(row["verdicts"]))
    line = ("named" if row["line_named"] else "NOT NAMED") if named else "-"
    right = "right" if row["correct"] else "WRONG"
    return [row["name"], row["label"], verdict, right, *steps, line, row["holder"] or "-", time]


def _show_overhead(seconds: Sequence[Mapping[str, float]]) -> None:
    if not seconds:
        return
    for name in ("mean_step", "median_step"):
        added = statistics.median(each[f"watched_{name}"] - each[f"plain_{name}"] for each in seconds)
        print(f"tbmem adds {added * 1e6:.0f} µs to the {name.replace('_', ' ')} (median over loops)")
    alone, watched = (sum(each[f"{name}_total"] for each in seconds) for name in ("plain", "watched"))
    print(f"all loops together: {alone:.1f} s alone, {watched:.1f} s watched, start and end of tbmem included")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=Path, required=True, help="folder of loop files")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each loop, to see verdicts that change")
    parser.add_argument("--jobs", type=int, default=1, help="loops that run at the same time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a loop is given up")
    parser.add_argument("--device", help="where the loops' tensors lie, if not on the CPU: cuda (see run_loop.py)")
    parser.add_argument("--totals", action="store_true", help="name no loop: for a folder nobody should tune on")
    parser.add_argument("--only", help="loops whose names contain this")
    parser.add_argument(
        "--no-overhead", dest="overhead", action="store_false", help="leave out the runs without tbmem: half the time"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = options(arguments)
    try:
        for name in ("steps", "repeat", "jobs", "limit"):
            if getattr(given, name) <= 0:
                raise WrongInput(f"--{name} must be above 0")
        loops = [loop.within(given.steps) for loop in read_loops(given.loops) if (given.only or "") in loop.path.stem]
        if not loops:
            raise WrongInput(f"no loop's name contains {given.only!r}")
    except WrongInput as error:
        print(f"verdicts.py: {error}", file=sys.stderr)
        return 2
    result = measure(loops, given)
    if given.json:
        print(json.dumps(result, indent=1))
    else:
        show(result, given.totals)
    return 1 if result["missed"] or result["false_alarms"] or result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
