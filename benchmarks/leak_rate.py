"""The growth rate that tbmem tells of a leak, beside the one that is counted without it.

    python benchmarks/leak_rate.py --loops DIR [DIR ...] [--steps 300] [--only NAME] [--json]

Each loop of the folders whose LABEL is leak (see verdicts.py) runs twice, each time in a process of its own: alone,
with the process's memory read after every step, and under MemoryCallback in the default configuration. The truth is
the slope of what the loop alone held: malloc's blocks for a leak that tbmem sees there, resident memory that is shared
with nobody for one that it sees in the process or in its children. A leak is constant where the run alone has
the same slope in both halves (within 2 %) and in all quarters (within 5 %); of the others, as of a cache for inputs of
random sizes, the rate is printed, but not counted.

Exit status: 0 if every rate of a constant leak is within 2 % of the truth, and is the same on every screen.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import heading, table
from run_loop import load
from verdicts import Loop, WrongInput, read_loops

TOLERANCE = 0.02
"""Share of the truth by which a rate may differ from it."""
_QUARTERS = 0.05
"""Share of the truth by which a quarter of the run may differ from it."""
_SETTLED = 60
"""Steps after the onset that do not count for the truth: lazy state, caches, the allocator's first arenas."""
_BLOCK = 20
"""Steps of which the lowest level counts: what comes and goes (the collector's garbage, validation) is no growth."""
SERIES = {"allocated": "malloc", "host": "private", "workers": "children"}
"""What is counted for each channel of a finding."""


class _Mallinfo2(ctypes.Structure):
    # size_t each: arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost
    _fields_ = [(name, ctypes.c_size_t) for name in (*"abcd", "hblkhd", *"ef", "uordblks", *"gh")]


def count(path: Path, steps: int, result: Path) -> None:
    """Run a loop alone and write what the process held after each step."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo2
    step = load(path.resolve()).make()
    levels = {name: np.zeros(steps, dtype=np.int64) for name in SERIES.values()}
    try:
        for number in range(steps):
            step(number)
            info = mallinfo2()
            levels["malloc"][number] = info.uordblks + info.hblkhd
            levels["private"][number] = _private(os.getpid())
            levels["children"][number] = sum(map(_private, _children()))
    finally:
        getattr(step, "close", lambda: None)()
    result.write_text(json.dumps({name: each.tolist() for name, each in levels.items()}))


def _private(pid: int) -> int:
    """Resident bytes that a process shares with nobody."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _children() -> list[int]:
    return [int(pid) for each in Path("/proc/self/task").glob("*/children") for pid in each.read_text().split()]


def true_rate(levels: Sequence[int], onset: int) -> tuple[float, bool]:
    """Bytes per step of a loop alone, and whether it grows by the same in every part of the run."""
    known = np.asarray(levels[onset + _SETTLED :], dtype=float)
    blocks = len(known) // _BLOCK
    parts = known[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    at = np.arange(blocks) * _BLOCK + parts.argmin(axis=1)
    floors = parts.min(axis=1)
    rate = _slope(at, floors)

    def is_even(parts: int, tolerance: float) -> bool:
        places = np.array_split(np.arange(blocks), parts)
        return all(abs(_slope(at[place], floors[place]) - rate) <= tolerance * abs(rate) for place in places)

    return rate, is_even(2, TOLERANCE) and is_even(4, _QUARTERS)


def _slope(at: Any, levels: Any) -> float:
    return float(np.polyfit(at, levels, 1)[0]) if len(at) > 1 else 0.0


def screens(folder: Path) -> dict[str, float | None]:
    """What ``watch``, ``check`` and the Overview say of the growth of a run's only device, from its log alone."""
    from tbmem.analysis.runs.checks import Limits, check_run
    from tbmem.offline.live_logs import read_one_run
    from tbmem.present.text.run_status import run_view

    states = read_one_run(folder).states
    view = run_view(folder.name, states, 0.0)
    checked = check_run(states, Limits(max_growth=0.0))
    return {
        "watch": view["ranks"][0]["devices"][0]["growth_per_step"],
        "check": next(result.measured for result in checked if result.check == "max-growth"),
    }


def watch(path: Path, steps: int, result: Path) -> None:
    """Run a loop under MemoryCallback and write the rates that are told of it."""
    from array import array

    from run_loop import run_watched

    step = load(path.resolve()).make()
    with tempfile.TemporaryDirectory() as logdir:
        try:
            summary = run_watched(step, array("d", bytes(8 * steps)), logdir)
        finally:
            getattr(step, "close", lambda: None)()
        verdict = next((each for each in summary.verdicts if each.kind.value == "leak"), None)
        leaks = [each for each in summary.findings if each.kind.value == "leak"]
        told: dict[str, Any] = {} if verdict is None else screens(Path(summary.folder))
    if verdict is not None:
        told |= {"channel": verdict.evidence["channel"], "verdict": verdict.evidence["bytes_per_step"]}
        told["findings"] = [each.evidence["bytes_per_step"] for each in leaks]
    result.write_text(json.dumps(told))


def run(loop: Loop, mode: str, steps: int) -> dict[str, Any]:
    """One of the two runs of a loop, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        result = Path(name) / "result.json"
        command = [sys.executable, __file__, mode, str(loop.path), "--steps", str(steps), "--result", str(result)]
        paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode or not result.is_file():
            last = ended.stderr.strip().splitlines()[-1:] or ["no output"]
            return {"error": f"{mode}: exit status {ended.returncode}: {last[0]}"}
        return dict(json.loads(result.read_text()))


def measure(loop: Loop, steps: int) -> dict[str, Any]:
    """One loop: the truth, and what was told."""
    told = run(loop, "watch", steps)
    row = {"name": loop.path.stem, "error": told.get("error", ""), "channel": told.get("channel")}
    if "verdict" not in told:
        return row
    counted = run(loop, "count", steps)
    if "error" in counted:
        return row | {"error": counted["error"]}
    truth, constant = true_rate(counted[SERIES[told["channel"]]], loop.onset)
    rates = {name: told[name] for name in ("verdict", "watch", "check")} | {"finding": told["findings"][-1]}
    errors = {name: None if rate is None else rate / truth - 1 for name, rate in rates.items()}
    return row | {"truth": truth, "constant": constant, "rates": rates, "errors": errors}


def wrong(row: Mapping[str, Any]) -> bool:
    """Whether a constant leak's rate is not told, not true, or not the same everywhere."""
    if row["error"]:
        return True
    if not row.get("constant"):
        return False
    return any(error is None or abs(error) > TOLERANCE for error in row["errors"].values())


def show(rows: Sequence[Mapping[str, Any]], steps: int) -> None:
    """Print the result as Markdown."""
    print(heading(f"leak_rate.py: {len(rows)} leaks, {steps} steps"))
    names = ("verdict", "finding", "watch", "check")
    lines = []
    for row in rows:
        if "truth" not in row:
            lines.append([row["name"], row["error"] or "no leak told", *[""] * (len(names) + 2)])
            continue
        cells = [_cell(row["rates"][name], row["errors"][name]) for name in names]
        state = "WRONG" if wrong(row) else "" if row["constant"] else "not constant"
        lines.append([row["name"], row["channel"], f"{row['truth'] / 1024:.2f}", *cells, state])
    print(table(["loop", "channel", "truth, KiB/step", *names, ""], lines))
    known = [row for row in rows if row.get("constant")]
    worst = max((abs(error) for row in known for error in row["errors"].values() if error is not None), default=0.0)
    print(f"\n{len(known)} constant leaks, largest error {worst:.2%}, wrong: {sum(map(wrong, rows))}")


def _cell(rate: float | None, error: float | None) -> str:
    return "-" if rate is None or error is None else f"{rate / 1024:.2f} ({error:+.1%})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("count", "watch"), help=argparse.SUPPRESS)
    parser.add_argument("loop", nargs="?", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--loops", type=Path, nargs="+", help="folders of loop files")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", default="", help="loops whose names contain this")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    if given.mode is not None:
        {"count": count, "watch": watch}[given.mode](given.loop, given.steps, given.result)
        return 0
    try:
        loops = [loop for folder in given.loops or () for loop in read_loops(folder)]
        loops = [loop for loop in loops if loop.label == "leak" and given.only in loop.path.stem]
        if not loops:
            raise WrongInput("no leaking loop was given: --loops DIR")
    except WrongInput as error:
        print(f"leak_rate.py: {error}", file=sys.stderr)
        return 2
    rows = [measure(loop, given.steps) for loop in loops]
    print(json.dumps(rows, indent=1)) if given.json else show(rows, given.steps)
    return 1 if any(map(wrong, rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
