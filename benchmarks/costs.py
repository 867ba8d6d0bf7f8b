"""What small files with much in them cost, beside honest ones; run as ``python benchmarks/costs.py``.

Each is read in a process of its own: bytes on the disk and unpacked, the growth of the resident peak while it is read,
processor time, and the end: read, or the one line that refuses it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import heading, table

PROJECT = Path(__file__).parent.parent
CORPUS = Path(os.environ.get("TBMEM_CORPUS", PROJECT.parent / "shared" / "corpus"))
_CHUNK = 1 << 20


def work(path: Path) -> None:
    """In a process of its own: read once, print seconds, memory and the end."""
    from tbmem.errors import FileFormatError
    from tbmem.model.monitor_log import read_monitor_log
    from tbmem.sources.recording import read_recording

    before, began = _peak(), time.process_time()
    try:
        kept = read_monitor_log(path) if path.suffix == ".jsonl" else read_recording(path)
        end = f"read: {type(kept).__name__}"
    except FileFormatError as error:
        end = str(error).removeprefix(f"{path}: ")
    print(json.dumps({"seconds": time.process_time() - began, "memory": _peak() - before, "end": end}))


def _peak() -> int:
    """Resident peak of this program in bytes (getrusage would count its parent's, too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def measured(name: str, path: Path) -> list[object]:
    """A line of the table."""
    command = [sys.executable, __file__, "--work", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(PROJECT)}
    )
    result = json.loads(done.stdout.splitlines()[-1])
    unpacked = _unpacked(path)
    return [
        name,
        f"{path.stat().st_size:,}".replace(",", " "),
        f"{unpacked:,}".replace(",", " "),
        f"{result['memory'] / 1e6:.0f}",
        f"{result['memory'] / unpacked:.1f}" if unpacked > _CHUNK else "",
        f"{result['seconds']:.2f}",
        result["end"].split(":")[0][:90].replace("|", ""),
    ]


def _unpacked(path: Path) -> int:
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(map(len, iter(lambda: file.read(_CHUNK), b"")))


def honest() -> Iterator[tuple[str, Path]]:
    """The corpus' snapshots and traces."""
    for kind in ("snapshots", "traces"):
        for path in sorted((CORPUS / kind).iterdir(), key=lambda path: path.stat().st_size):
            yield f"{kind[:-1]} {path.name.partition('__')[0]}", path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    sys.path.insert(0, str(PROJECT))
    from tests.hostile_files import HOSTILE, write_hostile

    columns = ["file", "bytes", "unpacked", "MB of memory", "by unpacked", "s", "end"]
    print(heading("costs.py: small files with much in them, and honest ones"))
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(name, write_hostile(name, Path(folder))) for name in HOSTILE]
    if CORPUS.is_dir():
        rows += [measured(name, path) for name, path in honest()]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
