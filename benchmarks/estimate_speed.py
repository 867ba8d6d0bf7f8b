"""How long estimates take, and how much memory of this machine.

python benchmarks/estimate_speed.py [--only TEXT]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from harness import heading, table

from tbmem import estimate
from tbmem.units import format_bytes

LLAMA = {"dtype": "bfloat16", "seq": 4096}
CASES: dict[str, tuple[float, dict[str, object]]] = {
    "GPT-2, one GPU": (10, {"model": "gpt2", "batch": 8}),
    "Llama 7B, one GPU": (10, {"model": "llama-7b", **LLAMA}),
    "Llama 7B, FSDP2 on 8": (10, {"model": "llama-7b", "fsdp": 8, **LLAMA}),
    "Llama 70B, checkpointed, FSDP2 on 64": (30, {"model": "llama-70b", "fsdp": 64, "checkpoint": True, **LLAMA}),
    "GPT-2, FSDP2 on 1024, rank 3": (40, {"model": "gpt2", "fsdp": 1024, "rank": 3}),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    rows, late = [], 0
    for name, (limit, fields) in CASES.items():
        if given.only not in name:
            continue
        began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        result = estimate(**fields)  # type: ignore[arg-type]
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        worked = after.ru_utime - used.ru_utime + after.ru_stime - used.ru_stime
        late += seconds > limit
        host = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        rows.append(
            [
                name,
                f"{seconds:.1f}",
                f"{worked:.1f}",
                f"{limit}",
                format_bytes(host),
                format_bytes(result.peak_allocated),
                format_bytes(result.peak_reserved),
            ]
        )
    print(heading("Time of an estimate"))
    header = "training,seconds,of a processor,limit,most host memory so far,peak allocated,peak reserved"
    print(table(header.split(","), rows))
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
