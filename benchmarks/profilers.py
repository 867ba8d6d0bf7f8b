"""A program's own profilers, tracers and debuggers beside tbmem, each at each moment of a run.

    python benchmarks/profilers.py [--tools "cProfile;memray"] [--moments window,look]

Each pair is tried in a process of its own, so that a crash is seen as one. The tool's results must be whole; what tbmem
gives up for that it says in one line. Prints the table of ``docs/profilers.md``; exit code 1 if a tool was not whole, a
process crashed, hung or raised, or tbmem said the same twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harness import heading, table
from profiler_tools import TORCH_TOOLS, Tool

LONGEST = 180
"""Seconds after which a process counts as hanging."""
STEPS = 120
"""Steps of a run at most: windows in steps 4-6 and 10-12, then a look for holders, with whose end the run ends."""
LAST_WINDOW = 19
"""The last step of a run without the look; both windows are recorded then, though one was postponed."""
MOMENTS = {
    "run": "on before the run begins, off after it has ended",
    "warm-up": "on and off within step 2, in which the window warms up",
    "window": "on and off within step 5, which is recorded",
    "into window": "on before the window begins, off in the middle of it",
    "out of window": "on in the middle of a window, off after its end",
    "look": "on and off within a step whose allocations are followed, to find who holds them",
    "traced lines": "on and off within the step whose lines are followed",
    "record": "on and off within a block of tbmem.record()",
    "around record": "on before such a block, off after it",
}


def never(step: int) -> bool:
    """At no step."""
    return False


def tools() -> dict[str, type[Tool]]:
    """The tools by name."""
    from python_profilers import PYTHON_TOOLS

    return {tool.name: tool for tool in (*TORCH_TOOLS, *PYTHON_TOOLS)}


class Program:
    """A training loop with a leak, and the tool that is tried in it."""

    def __init__(self, name: str, folder: Path) -> None:
        import torch
        from profiler_tools import BLOCK

        import tbmem

        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
        batch = torch.randn(8, 16, device=device)

        def work() -> None:
            block = torch.empty(BLOCK, dtype=torch.uint8, device=device) if device == "cuda" else bytearray(BLOCK)
            model(batch).sum().backward()
            del block

        self.tbmem = tbmem  # imported as in any program, before a tool is on
        self.folder = folder
        self.kept: list[Any] = []
        self.device = device
        self.work = work
        self.tool = tools()[name](work, folder)
        self.is_on = self.was_on = False
        self.calls = 0

    def start(self) -> None:
        """Start the tool."""
        self.is_on = self.was_on = True
        self.tool.start()

    def stop(self) -> None:
        """Stop the tool."""
        self.is_on = False
        self.tool.stop()

    def call(self) -> None:
        """Call ``work``, and count the call if the tool is on."""
        self.work()
        if self.is_on:
            self.calls += 1
            self.tool.tick()

    def step(self, starts: bool, stops: bool) -> None:
        """A step of the training, in the middle of which the tool may start and stop."""
        import torch

        self.kept.append(torch.ones(1 << 18, device=self.device))
        self.call()
        if starts:
            self.start()
        self.call()
        self.call()
        if stops:
            self.stop()
        self.call()

    def _has_ended(self, step: int, looks: bool) -> bool:
        if not looks:
            return step == LAST_WINDOW
        return any(self.folder.rglob("evidence-*.json"))

    def train(self, starts: Callable[[int], bool], stops: Callable[[int], bool], *, looks: bool) -> dict[str, Any]:
        """A run with its windows, and with its look for holders or without; returns what tbmem has recorded in it."""
        run = {"logdir": str(self.folder), "name": "run"}
        with self.tbmem.MemoryCallback(run=run, profiling={"repeat": 2}) as memory:
            for step in range(1, STEPS + 1):
                begins = not self.was_on and starts(step)
                ends = (self.is_on or begins) and stops(step)
                self.step(begins, ends)
                memory.step()
                if self._has_ended(step, looks):
                    break
        windows = memory.profiler.ledger.windows if memory.profiler is not None else []
        evidence = [json.loads(path.read_text()) for path in sorted(self.folder.rglob("evidence-*.json"))]
        return {
            "windows": [[len(window.steps), window.complete, window.trace is not None] for window in windows],
            "holders": sum(bool(_holders(each)) for each in evidence) if looks else None,
        }

    def record(self) -> dict[str, Any]:
        """A block of ``tbmem.record``; returns what it has recorded."""
        around = self.is_on
        with self.tbmem.record("block", logdir=str(self.folder)) as recording:
            self.step(not around, not around)
        return {"files": len(recording.files)}


def _holders(evidence: dict[str, Any]) -> list[Any]:
    text: Any = evidence.get("evidence", evidence)
    holders: list[Any] = text.get("holders", [])
    return holders


def is_followed() -> bool:
    """Whether the step's allocations are followed now."""
    from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors

    return ProfilerSurvivors.current is not None


def is_traced() -> bool:
    """Whether tbmem follows the lines of this step."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None:
        return "tbmem" in (monitoring.get_tool(3), monitoring.get_tool(4))
    return sys.gettrace() is not None


def try_one(name: str, moment: str, folder: Path) -> None:
    """Try a tool at a moment, in this process, and print the outcome as JSON."""
    logging.basicConfig(level=logging.WARNING)
    program = Program(name, folder)
    train = program.train
    if moment == "run":
        program.start()
        done = train(never, never, looks=True)
        program.stop()
    elif moment == "record":
        done = program.record()
    elif moment == "around record":
        program.start()
        done = program.record()
        program.stop()
    else:
        starts, stops = {
            "warm-up": (lambda step: step == 2, lambda step: step == 2),
            "window": (lambda step: step == 5, lambda step: step == 5),
            "into window": (lambda step: step == 1, lambda step: step == 5),
            "out of window": (lambda step: step == 5, lambda step: step == 7),
            "look": (lambda step: step > 13 and is_followed(), lambda step: True),
            "traced lines": (lambda step: step > 13 and is_traced(), lambda step: True),
        }[moment]
        done = train(starts, stops, looks=moment in ("look", "traced lines"))
    missing = program.tool.missing(program.calls) if program.was_on else "never started"
    print("OUTCOME " + json.dumps({**done, "missing": missing, "calls": program.calls}), flush=True)


def outcome(name: str, moment: str, *, show: bool = False) -> str:
    """The cell of the table: ``both``, what tbmem gives up, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="profilers-") as folder:
        command = [sys.executable, "-X", "faulthandler", __file__, "--one", name, moment, folder]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            return "**hangs**"
        left = [path.name for path in Path(folder).rglob("*") if re.search(r"\.(partial|tmp)\b", path.name)]
    output = ended.stdout + ended.stderr
    if show:
        print(output)
    if ended.returncode < 0:
        return f"**crash ({-ended.returncode})**"
    if ended.returncode or "Traceback" in output:
        return f"**raises: {output.strip().splitlines()[-1][:100]}**"
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("OUTCOME ")]
    done = json.loads(line.removeprefix("OUTCOME "))
    said = re.findall(r"^WARNING:tbmem:.*", output, flags=re.MULTILINE)
    lines = Counter(re.sub(r"\d+", "N", text) for text in said)
    if done["missing"]:
        return f"**tool: {done['missing']}**"
    if left:
        return f"**left: {left[0]}**"
    repeated = [text for text, count in lines.items() if count > 1]
    if repeated:
        return f"**said {lines[repeated[0]]} times: {repeated[0][:60]}**"
    return given_up(done)


def given_up(done: dict[str, Any]) -> str:
    """What tbmem has not recorded, in a few words."""
    if "files" in done:
        return "both" if done["files"] else "not recorded"
    whole = sum(complete and traced for _, complete, traced in done["windows"])
    short = len(done["windows"]) - whole
    words = []
    if whole < 2:
        words.append(f"{whole} of 2 windows whole" + (f", {short} shorter" if short else ""))
    if done["holders"] == 0:
        words.append("no holder")
    return "; ".join(words) or "both"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tools", default=";".join(tools()), help="names, separated by semicolons")
    arguments.add_argument("--moments", default=",".join(MOMENTS), help="names, separated by commas")
    arguments.add_argument("--jobs", type=int, default=1, help="how many processes at a time")
    arguments.add_argument("--show", action="store_true", help="what each process prints")
    arguments.add_argument("--one", nargs=3, metavar=("TOOL", "MOMENT", "FOLDER"), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        with contextlib.suppress(BrokenPipeError):
            try_one(given.one[0], given.one[1], Path(given.one[2]))
        return 0
    moments = given.moments.split(",")
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for name in given.tools.split(";"):
            reason = tools()[name].why_not()
            cells = (
                [reason] * len(moments) if reason else list(pool.map(partial(outcome, name, show=given.show), moments))
            )
            rows.append([name, *cells])
            print("| " + " | ".join(rows[-1]) + " |", file=sys.stderr, flush=True)
    print(heading("profilers.py: a program's own profilers beside tbmem"))
    print(table(["tool", *moments], rows))
    return int(any(cell.startswith("**") for row in rows for cell in row))


if __name__ == "__main__":
    sys.exit(main())
