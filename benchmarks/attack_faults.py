"""Faults during a run: starts programs, ends them, and judges how they ended; for ``attack.py``."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from attack_probes import CLEAR, CRASH, HANG, PLAUSIBLE, TRACEBACK
from attack_programs import PRELUDE, PROGRAMS

SECONDS = 60


class Fault(NamedTuple):
    """What was tried, and what became of it."""

    what: str
    outcome: str
    detail: str


def faults() -> list[str]:
    """Names of all faults."""
    return [*PROGRAMS, "killed", "SIGTERM", "full disk"]


def run_fault(number: int, folder: Path, seed: str) -> Fault:
    """Run the fault of a number, all of them in turn, in a new folder."""
    name = faults()[number % len(faults())]
    chance = random.Random(f"{seed}:fault:{number}")
    place = Path(tempfile.mkdtemp(dir=folder))
    text = str(chance.getrandbits(32))
    if name in ("killed", "SIGTERM"):
        which = signal.SIGKILL if name == "killed" else signal.SIGTERM
        outcome, detail = _killed(place, text, which, chance.uniform(0.5, 6.0))
    elif name == "full disk":
        with small_disk(place, chance.choice((16, 64, 150, 300))) as limit:
            outcome, detail = _ran(PRELUDE + limit + "run()", place, text)
    else:
        outcome, detail = _ran(PRELUDE + PROGRAMS[name], place, text)
    if outcome in (CLEAR, PLAUSIBLE) and (place / "run/plugins/tbmem/monitor.jsonl").exists():
        read, why = _read_back(place / "run")
        if read not in (CLEAR, PLAUSIBLE):
            return Fault(name, read, f"afterwards: {why}")
    return Fault(name, outcome, detail)


def _start(program: str, place: Path, text: str) -> subprocess.Popen[str]:
    file = place / "program.py"
    if not file.exists():
        with contextlib.suppress(OSError):
            file.write_text(program)
    command = [sys.executable, "-c", program, str(place), text]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        cwd=place,
        env=environment,
        start_new_session=True,
    )


def _ran(program: str, place: Path, text: str) -> tuple[str, str]:
    return judged_run(*_ended(_start(program + '\nprint("DONE")\n', place, text)))


def _ended(started: subprocess.Popen[str]) -> tuple[int | None, str, str]:
    """Exit code, output and errors; no code if it had to be killed."""
    try:
        out, err = started.communicate(timeout=SECONDS)
        return started.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        out, err = started.communicate()
        return None, out, err


def judged_run(code: int | None, out: str, err: str) -> tuple[str, str]:
    """The outcome of a program that should have ended in order."""
    last = next((line for line in reversed(err.splitlines()) if line.strip()), "")
    if code is None or "HANG" in out:
        told = next((line for line in out.splitlines() if line.startswith("HANG")), "")
        return HANG, told or f"no end in {SECONDS} s"
    if code < 0:
        return CRASH, f"signal {-code}: {_frame(err)}"
    if code or "DONE" not in out:
        return TRACEBACK, f"exit code {code}: {last[:160]}"
    if "Traceback (most recent call last)" in err and "/tbmem/" in err:
        return TRACEBACK, last[:160]
    said = [line for line in err.splitlines() if "training goes on" in line or "REFUSED" in line]
    return (CLEAR, said[0][:160]) if said else (PLAUSIBLE, "")


def _frame(err: str) -> str:
    """The innermost Python frame that faulthandler has written."""
    return next((line.strip() for line in err.splitlines() if line.strip().startswith("File ")), "")[:160]


def _killed(place: Path, text: str, number: signal.Signals, seconds: float) -> tuple[str, str]:
    started = _start(PRELUDE + "run(lambda step: time.sleep(0.03), steps=100_000)", place, text)
    time.sleep(seconds)
    started.send_signal(number)
    code, _, err = _ended(started)
    if code is None:
        return HANG, f"no end in {SECONDS} s after {number.name}"
    if code != -number:
        return TRACEBACK, f"exit code {code} after {number.name} at {seconds:.2f} s: {err[-160:]!r}"
    return PLAUSIBLE, ""


def _read_back(run: Path) -> tuple[str, str]:
    """What commands say of the run afterwards."""
    for words in (["watch", str(run), "--once"], ["check", str(run), "--no-leak"]):
        ran = subprocess.run(
            [sys.executable, "-m", "tbmem", *words], capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if ran.returncode not in (0, 1, 2) or "Traceback" in ran.stderr:
            return TRACEBACK, f"{words[0]}: {ran.stderr[-160:]!r}"
    return PLAUSIBLE, ""


@contextlib.contextmanager
def small_disk(place: Path, kib: int) -> Iterator[str]:
    """A disk of so many KiB at a folder where one may be mounted; else code that limits the size of files instead."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    try:
        yield "" if is_mounted else _file_limit(kib)
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def _file_limit(kib: int) -> str:
    return f"""
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({kib << 10}, {kib << 10}))
"""
