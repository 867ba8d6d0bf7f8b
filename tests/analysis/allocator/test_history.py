"""The allocator at any event of a recording is the allocator as it was then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.history import AllocatorHistory
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import BlockState
from tbmem.sources.snapshot.reader import read_snapshot, timeline_of_snapshot
from tbmem.units import GIB
from tests.analysis.allocator.recording import Recorder, busy_recorder
from tests.analysis.allocator.test_what_if import as_snapshot
from tests.conftest import CORPUS

States = list[tuple[int, int, list[tuple[int, int, int]]]]
SETTINGS = {"default": "", "expandable": "expandable_segments:True", "no large splits": "max_split_size_mb:21"}


class WatchedRecorder(Recorder):
    """A recorder that also keeps the state of its allocator after some events."""

    def __init__(self, settings: AllocatorSettings, device: SimpleDevice) -> None:
        super().__init__(settings, device)
        self.seen: dict[int, States] = {}

    def complete(self) -> None:
        super().complete()
        self.keep()

    def malloc(self, size: int, stream: int = 0, pool: int = 0) -> None:
        super().malloc(size, stream, pool)
        self.keep()

    def keep(self) -> None:
        self.seen[len(self.rows) - 1] = [
            (blocks[0].address, blocks[0].pool.small, [_entry(block) for block in blocks]) for blocks in self.segments()
        ]


def _entry(block: Block) -> tuple[int, int, int]:
    state = BlockState.ALLOCATED if block.allocated else BlockState.PENDING_FREE if block.busy else BlockState.INACTIVE
    return block.address, block.size, int(state)


def states_of(timeline: AllocationTimeline, device: int = 0) -> States:
    """Segments by address, each with its blocks."""
    segments, blocks = timeline.segments, timeline.blocks
    found = []
    for number in np.flatnonzero(segments.device == device)[np.argsort(segments.address[segments.device == device])]:
        inside = blocks.take(blocks.segment == number)
        columns = zip(inside.address.tolist(), inside.bytes.tolist(), inside.state.tolist(), strict=True)
        found.append((int(segments.address[number]), segments.kind[number] == 0, sorted(columns)))
    return found


def watched(text: str, first: int, monkeypatch: pytest.MonkeyPatch) -> tuple[AllocatorHistory, dict[int, States]]:
    """A history from event ``first`` of a load on, and what the load's allocator was after many of its events."""
    monkeypatch.setattr("tests.analysis.allocator.recording.Recorder", WatchedRecorder)
    recorder = busy_recorder(parse_settings(text), SimpleDevice(2 * GIB), seed=3)
    assert isinstance(recorder, WatchedRecorder)
    snapshot = as_snapshot(recorder, first) | {"allocator_settings": {"PYTORCH_ALLOC_CONF": text}}
    seen = {event - first: states for event, states in recorder.seen.items() if event >= first}
    assert len(seen) > 100
    return AllocatorHistory(timeline_of_snapshot(snapshot), 0), seen


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS)
def test_each_event_shows_the_allocator_as_it_was(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history, seen = watched(text, 0, monkeypatch)

    assert [event for event, states in seen.items() if states_of(history.at(event)) != states] == []


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS)
def test_a_recording_that_began_late_misses_only_details_of_older_blocks(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # such as a rest that was not split off, or whether the program had dropped it
    history, seen = watched(text, 900, monkeypatch)

    for event, states in seen.items():
        for found, (address, small, blocks) in zip(states_of(history.at(event)), states, strict=True):
            assert found[:2] == (address, small)
            assert [begin for begin, _, state in found[2] if state] == [begin for begin, _, state in blocks if state]
            assert sum(size for _, size, _ in found[2]) == sum(size for _, size, _ in blocks)


@pytest.mark.parametrize("path", sorted((CORPUS / "snapshots").glob("*.pickle")), ids=lambda path: path.stem[:20])
def test_the_last_event_of_a_recording_is_its_end(path: Path) -> None:
    timeline = read_snapshot(path)
    for device, totals in enumerate(timeline.devices):
        ended = AllocatorHistory(timeline, device).at(totals.events)

        assert states_of(ended, device) == states_of(timeline, device)
