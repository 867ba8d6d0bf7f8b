"""How long a rehearsal takes: a public GPT-2 training script, its largest batch, and Llama-3-8B as one rank of many.

    python benchmarks/rehearse_speed.py [--nanogpt FOLDER]

Needs the CUDA build of torch, and no GPU. FOLDER is a checkout of https://github.com/karpathy/nanoGPT with tokens in
``data/openwebtext`` (``train.bin`` and ``val.bin``, unsigned 16-bit: random ones serve); its script is run unmodified.
Exit code 0: each answer came within its limit; 1: one did not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import heading, table

from tbmem.units import format_bytes

HERE = Path(__file__).parent
NANOGPT = ("train.py", "--compile=False", "--batch_size=12")
LLAMA = str(HERE / "programs" / "llama_fsdp.py")


class Case(NamedTuple):
    """A rehearsal and the seconds that it may take."""

    name: str
    options: tuple[str, ...]
    words: tuple[str, ...]
    limit: int
    folder: Path = HERE


def cases(nanogpt: Path | None) -> list[Case]:
    """The rehearsals that can run here."""
    ranks = [
        Case(f"Llama-3-8B, FSDP2, rank 0 of {world}", ("--world-size", str(world)), (LLAMA,), 60) for world in (8, 512)
    ]
    if nanogpt is None:
        return ranks
    card = ("--gpu", "a100-40gb")
    return [
        Case("nanoGPT, GPT-2 124M", card, NANOGPT, 60, nanogpt),
        Case("its largest batch", (*card, "--largest", "batch_size=1..256"), NANOGPT, 300, nanogpt),
        *ranks,
    ]


def measured(case: Case, logdir: str) -> tuple[list[str], bool]:
    """A row of the table, and whether the answer came in time."""
    command = [
        sys.executable,
        "-m",
        "tbmem",
        "rehearse",
        "--json",
        "--logdir",
        logdir,
        *case.options,
        "--",
        *case.words,
    ]
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=case.folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if not done.stdout:
        return [case.name, (done.stderr.strip().splitlines() or ["no reason is given"])[-1], "", "", "", ""], False
    answer = json.loads(done.stdout)
    result = answer.get("result", answer)
    value = f"batch {answer['value']}" if "value" in answer else "fits" if answer["fits"] else "does not fit"
    sizes = [format_bytes(result[name]) for name in ("peak_allocated", "peak_reserved")]
    return [case.name, value, *sizes, f"{seconds:.0f} s", f"{case.limit} s"], seconds <= case.limit


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nanogpt", type=Path, help="checkout of nanoGPT with tokens in data/openwebtext")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as logdir:
        rows = [measured(case, logdir) for case in cases(given.nanogpt)]
    print(heading("rehearse_speed.py: seconds until a rehearsal's answer"))
    print(table(["rehearsal", "answer", "allocated", "reserved", "seconds", "limit"], [row for row, _ in rows]))
    return 0 if all(in_time for _, in_time in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
