"""How well the allocator's simulator predicts recordings of real GPUs.

    python benchmarks/allocator.py [DIR] [--repeat 3]

Each snapshot with events is undone to the state at its begin and replayed from there. A decision is right if a
request was served from the cache where it was in the recording, or by the very segments that were recorded
(which change, at which address, how many bytes). Of the recording the replay is told only which addresses the
device handed out, where the device was full, and where the user emptied the cache. DIR is a folder of
snapshots; by default that of the corpus (TBMEM_CORPUS, else ../shared/corpus).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from allocator_check import Decisions, check_decisions
from allocator_rewind import Start, final_segments, rewind
from allocator_state import Segment, seed
from harness import heading, table

from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import MemoryEvents, replay
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.allocator.what_if import recorded_events, recorded_settings
from tbmem.errors import FileFormatError
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.units import format_bytes


def recordings(path: Path) -> Iterator[tuple[list[Segment], MemoryEvents, AllocatorSettings]]:
    """What each device of a snapshot says: segments at the end, events, settings."""
    timeline = read_snapshot(path)
    settings = recorded_settings(timeline)
    for device in range(len(timeline.devices)):
        events = recorded_events(timeline, device)
        if len(events) > 1:
            yield final_segments(timeline, device), events, settings


def speed(events: MemoryEvents, start: Start, settings: AllocatorSettings, repeat: int) -> float:
    """Events a second of a plain replay, the best of some."""
    best = float("inf")
    for _ in range(repeat):
        allocator = CachingAllocator(settings)
        live = seed(allocator, start.segments, start.bases)
        began = time.perf_counter()
        replay(events, allocator=allocator, live=live)
        best = min(best, time.perf_counter() - began)
    return len(events) / best


def best_check(events: MemoryEvents, start: Start, settings: AllocatorSettings) -> tuple[Decisions, str]:
    """Ties by address, and by age where that explains more addresses: it depends on torch's version."""
    by_address = check_decisions(events, start, settings)
    if by_address.addresses_right == by_address.requests:
        return by_address, "address"
    by_age = check_decisions(events, start, settings, ties_by_age=True)
    return (by_age, "age") if by_age.addresses_right > by_address.addresses_right else (by_address, "address")


def share(part: int, whole: int) -> str:
    return f"{part / whole:.3%}" if whole else "none"


def error(simulated: int, recorded: int) -> str:
    return f"{simulated / recorded - 1:.4%}" if recorded else format_bytes(simulated)


def judge(path: Path, repeat: int) -> Iterator[tuple[list[str], bool, int, float]]:
    for segments, events, settings in recordings(path):
        start = rewind(segments, events, settings)
        result, ties = best_check(events, start, settings)
        final = sum(segment.size for segment in segments)
        allocated = sum(block.size for one in segments for block in one.blocks if block.allocated)
        right = (
            result.requests_right == result.requests
            and result.changes_right == result.changes
            and result.peak_reserved == result.recorded_peak
            and result.final_reserved == final
        )
        fast = speed(events, start, settings, repeat)
        yield (
            [
                path.name[:60],
                f"{len(events)}",
                share(result.requests_right, result.requests),
                f"{result.changes_right}/{result.changes}",
                share(result.addresses_right, result.requests) + f" ({ties})",
                format_bytes(result.recorded_peak),
                error(result.peak_reserved, result.recorded_peak),
                error(result.final_reserved, final),
                error(result.final_allocated, allocated),
                f"{fast / 1e6:.2f} M/s",
                f"{start.unexplained}",
                f"{start.unsure}",
            ],
            right,
            len(events),
            fast,
        )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    project = Path(__file__).parent.parent
    corpus = Path(os.environ.get("TBMEM_CORPUS", project.parent / "shared" / "corpus"))
    arguments.add_argument("folder", nargs="?", type=Path, default=corpus / "snapshots")
    arguments.add_argument("--repeat", type=int, default=3)
    given = arguments.parse_args()
    rows: list[list[str]] = []
    wrong, events, seconds = 0, 0, 0.0
    paths = sorted(path for path in given.folder.rglob("*") if path.suffix in (".pickle", ".pkl"))
    if not paths:
        arguments.error(f"{given.folder}: no snapshots (*.pickle) are in this folder")
    for path in paths:
        before = len(rows)
        try:
            for row, right, count, speed_of in judge(path, given.repeat):
                rows.append(row)
                wrong += not right
                events, seconds = events + count, seconds + count / speed_of
        except FileFormatError as refused:
            print(f"not read: {refused}", file=sys.stderr)
            continue
        if len(rows) == before:
            print(f"not replayed: {path}: no events are in it", file=sys.stderr)
    print(heading("The caching allocator, simulated"))
    header = "recording,events,requests right,changes right,addresses right,peak reserved,its error,final error"
    print(table([*header.split(","), "allocated error", "speed", "unexplained", "unsure"], rows))
    pace = events / seconds / 1e6 if rows else 0.0
    print(f"\n{len(rows) - wrong} of {len(rows)} recordings exact; {events} events at {pace:.2f} M/s")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
