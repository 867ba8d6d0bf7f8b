"""A hunt for holders and births that do what they are told."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType

from tbmem.model.evidence import Channel, Contents, Holder, HolderKind, Site, Suspicion
from tbmem.sources.survivors.tracker import SurvivorReport
from tbmem.units import KIB
from tests.model.test_evidence import make_suspicion

LIST = Holder(
    kind=HolderKind.LIST,
    name="list 'losses' in train()",
    length=40,
    per_step=1.0,
    contents=Contents.TENSORS,
    bytes_per_element=64 * KIB,
)


class FakeHunt:
    """Finds what it is told to."""

    def __init__(self, holders: tuple[Holder, ...] = (LIST,), *, lines_after: int = 1) -> None:
        self.holders = holders
        self.lines_after = lines_after
        self.looks: list[int] = []
        self.traces = self.traced_steps = 0
        self.is_tracing = False
        self.is_closed = False

    def look(self, step: int, frame: FrameType | None) -> None:
        self.looks.append(step)

    def trace(self, frame: FrameType | None) -> bool:
        self.traces += 1
        self.is_tracing = True
        return True

    def goes_on_tracing(self, frame: FrameType | None) -> bool:
        self.traced_steps += 1
        return self.traced_steps < self.lines_after

    def untrace(self, frame: FrameType | None = None) -> None:
        self.is_tracing = False

    def result(self, frame: FrameType | None) -> tuple[tuple[Holder, ...], tuple[str, ...]]:
        return self.holders, ("a note",)

    def close(self) -> None:
        self.is_closed = True


class FakeBirths:
    """Counts its marks."""

    def __init__(self, *, full_after: int = 99) -> None:
        self.full_after = full_after
        self.began = 0
        self.marks: list[int] = []
        self.is_recording = self.is_finished = self.is_abandoned = False

    @property
    def is_full(self) -> bool:
        return len(self.marks) >= self.full_after

    def begin(self, step: int) -> None:
        self.began = step
        self.is_recording = True

    def mark(self, step: int, between: Callable[[], object]) -> None:
        self.marks.append(step)
        self.is_recording = False
        between()
        self.is_recording = True

    def finish(self) -> SurvivorReport:
        self.is_finished = True
        return SurvivorReport(sites=(Site(generations=5, steps=5),), sizes_grow=0.0, notes=())

    def abandon(self) -> None:
        self.is_abandoned = True


def suspicion(
    *, gap: int = 1, channel: Channel = Channel.ALLOCATED, from_the_start: bool = False, per_step: int = 64 * KIB
) -> Suspicion:
    return make_suspicion(20, 48, per_step, channel=channel, gap=gap, from_the_start=from_the_start)
