"""Feeds a device's samples, as columns where they are alike, to its tests and gathers their events."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from tbmem.analysis.detector.free_heap import FreeHeap
from tbmem.analysis.detector.growth_channel import GrowthChannel, GrowthEvent
from tbmem.analysis.detector.growth_test import GrowthTest
from tbmem.analysis.detector.hidden_spikes import HiddenSpikes
from tbmem.analysis.detector.level_range import LevelRange
from tbmem.analysis.detector.low_water_marks import BLOCK, MarkedSeries
from tbmem.analysis.detector.recorded_peaks import Confirms, RecordedPeaks, unconfirmed
from tbmem.analysis.detector.resident_peaks import ResidentPeak, ResidentPeaks
from tbmem.analysis.detector.spike_test import Excursion, ExcursionEvent, ExcursionKind, SpikeTest
from tbmem.analysis.detector.thresholds import CapacityTest, FragmentationTest
from tbmem.config.schema import PatternsConfig
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample
from tbmem.units import MIB, parse_bytes

_RESIDENT_SUSPICIOUS = 4 * MIB  # resident memory comes in pages and arenas: less is no sign of anything
_RESIDENT_RISES = 7
RESIDENT_GROWTH = 8 * MIB
"""Growth of resident memory from which it can be a leak, in bytes."""
LARGEST_HEAP_BLOCK = 32 * MIB
"""Bytes of the largest block that glibc's malloc takes from its heap rather than maps (DEFAULT_MMAP_THRESHOLD_MAX,
``mallopt(3)``): what it keeps free differs by one of them."""
_MOSTLY = 0.5  # share of a height that lies in free memory, from which on it is none where pages were given back
_WORKERS_PATIENCE = 30  # readings of the child processes, at most two a second, over which they must have grown
_WORKERS_SECONDS = 0.5
_STRETCHES = 4  # stretches of steps between recordings whose resident peaks are remembered
_REMEMBERED = 128
"""Steps of which it is remembered whether an optimizer stepped: an excursion is reported some steps after it began."""
_CPU = "cpu"


class PatternEvent(Protocol):
    """A pattern of its own module was found."""

    @property
    def step(self) -> int:
        """The step in which it was found."""

    def finding(self, sample: MemorySample) -> Finding:
        """The finding, about that step's sample."""


class PatternTest(Protocol):
    """A test of a pattern that neither growth nor excursions show."""

    def take(self, columns: Any) -> Iterable[PatternEvent]:
        """Judge samples of evaluated steps, each field of ``MemorySample`` a column."""


Event = GrowthEvent | ExcursionEvent | PatternEvent


class SampleFeed:
    """Feeds the samples of one device to its tests."""

    def __init__(self, patterns: PatternsConfig) -> None:
        self._warmup = patterns.warmup_steps
        self.channels = _channels(patterns)
        self.is_cpu = False  # whether it is the CPU that is judged, whose memory is that of the host
        self.judged = 0  # number of evaluated steps
        self.levels, self.resident_levels = LevelRange(), LevelRange()  # after judged steps
        self._least_resident_spike = parse_bytes(patterns.min_resident_spike)
        self._spikes = {
            Channel.ALLOCATED: SpikeTest(patterns.held_spike_percent, parse_bytes(patterns.min_spike)),
            Channel.PEAK: SpikeTest(patterns.spike_percent, parse_bytes(patterns.min_spike)),
            Channel.HOST: SpikeTest(patterns.spike_percent, self._least_resident_spike),
        }
        self._recorded = RecordedPeaks(patterns.spike_percent, self._least_resident_spike)
        self._spike_share = patterns.spike_percent / 100
        self._capacity = CapacityTest(patterns.capacity_percent)
        self.fragments = FragmentationTest()
        self._patterns: Sequence[PatternTest] = (self.fragments,)
        self._interrupted = False
        self.free_heap = FreeHeap()  # of the CPU
        self._resident_peaks = ResidentPeaks()
        self._earlier_peaks: deque[ResidentPeaks] = deque(maxlen=_STRETCHES)
        """Those before the last recordings, each of which begins a stretch of its own."""
        self.hidden = HiddenSpikes(self._peaks_in, self._least_resident_spike)
        self.heap_size = MarkedSeries()  # what malloc has from the system, on the CPU
        self._has_private = self._has_heap = self._heap_interrupted = False
        self._fallen = 0.0  # bytes by which what is alive had fallen so far in steps that were not judged
        self._workers = (-1, 0.0)
        self._room: tuple[int | None, int | None] = (None, None)  # bytes left, and the resident memory at that reading
        self._updated: deque[tuple[int, bool | None]] = deque(maxlen=_REMEMBERED)
        self._is_updating = False  # whether an optimizer has stepped so far

    def columns(self, samples: Sequence[MemorySample]) -> Sequence[Any]:
        """The samples as columns: all together where they are alike, else one by one."""
        together: Any = MemorySample(*zip(*samples))  # type: ignore[arg-type] # noqa: B905 (rows of one type)
        if len(samples) == 1 or self._are_alike(together, len(samples)):
            return (together,)
        return [MemorySample(*zip(sample)) for sample in samples]  # type: ignore[arg-type]

    def take(self, columns: Any) -> list[Event]:
        """Judge one of the items of ``columns``; returns events by step, whatever the number of samples at a time."""
        events: list[Event] = []
        self.is_cpu = columns.device[0] == _CPU
        self._note_capacity(columns)
        events += self._capacity.take(columns)
        if columns.profiled[0] and self.is_cpu:
            # the profiler's own records lie in the same heap: its steps say nothing about the program
            if not self._interrupted:
                self._interrupted = True
                events += self._ended({channel: test.close() for channel, test in self._spikes.items()})
                self.free_heap.begin_recording()
            recorded = columns.step, columns.host_peak_rss, columns.host_rss, columns.allocated, columns.host_own
            self._recorded.add_recorded(*(column[0] for column in recorded))
            self._updated.append((columns.step[0], columns.updated[0]))
        elif columns.step[0] > self._warmup:
            if self._interrupted:
                self._resume()
            self.free_heap.note_given_back(columns)
            if columns.updated[-1] is not None:
                if not self._is_updating:
                    self._begin_updates()
                self._updated.extend(zip(columns.step, columns.updated, strict=True))
            self._judge_device(columns, events)
            for test in self._patterns:
                events += test.take(columns)
            self._judge_host(columns, events)
            self._judge_heap(columns, events)
            self._judge_workers(columns, events)
            self.judged += len(columns.step)
            if self.is_cpu:
                self._recorded.add_plain(columns.step, columns.host_peak_rss, columns.host_rss)
                events += [self._spike_event(columns.step[-1], each) for each in self._recorded.judged()]
        if not columns.profiled[0]:
            self._recorded.note_level(columns.allocated[-1], columns.host_own[-1])
        self.free_heap.note_end(columns)
        if len(events) > 1:
            # of excursions that became clear in the same step the highest first, of equals what is held when it ends:
            # the first explains the others
            events.sort(key=_order)
        return events

    def close(self, confirms: Confirms = unconfirmed) -> list[ExcursionEvent]:
        """End the run: what is still open or was held back, and recorded steps; ``confirms``: what recordings tell."""
        excursions = self._ended({channel: test.end() for channel, test in self._spikes.items()})
        recorded = [self._spike_event(each.last_step, each) for each in self._recorded.ended(confirms)]
        return sorted([*recorded, *excursions], key=lambda event: event.excursion.first_step)

    def hidden_spikes(self, reported: Sequence[Finding], is_periodic: Callable[[int], bool]) -> list[ExcursionEvent]:
        """Spikes of the CPU, beside those reported, that needed what malloc had kept: no resident peak shows them."""
        spikes = self.hidden.beside(reported, is_periodic) if self.is_cpu else []
        # what malloc has kept of the reported ones is in the usual level by now
        usual = min((each.evidence.get("usual_bytes", math.inf) for each in reported), default=math.inf)
        high = [each for each in spikes if self._is_high(each, min(each.usual, usual))]
        return [self._spike_event(each.last_step, each) for each in high]

    def _spike_event(self, step: int, spike: Excursion) -> ExcursionEvent:
        return ExcursionEvent(step, Channel.HOST, spike, dict(self._updated).get(spike.first_step))

    def _ended(self, excursions: Mapping[Channel, Iterable[Excursion]]) -> list[ExcursionEvent]:
        events: list[ExcursionEvent] = []
        for channel, ended in excursions.items():
            events += self._excursion_events(channel, [(each.last_step, each) for each in ended])
        return events

    def has_shifted(self, channel: Channel) -> bool:
        """Whether the last change of a channel's level stands."""
        return self._spikes[channel].has_shifted

    def _excursion_events(
        self, channel: Channel, excursions: Iterable[tuple[int, Excursion]]
    ) -> Iterable[ExcursionEvent]:
        for step, excursion in excursions:
            self._recorded.note_excursion(excursion)
            updated = dict(self._updated).get(excursion.first_step)
            if channel is not Channel.HOST:
                yield ExcursionEvent(step, channel, excursion, updated, self._higher_peak(channel, excursion))
                continue
            peaks = self._peaks_of(excursion)
            # one that is open when the run ends may go on as well
            may_stay = excursion.kind is ExcursionKind.SHIFT or peaks.end_with(excursion)
            climbs = may_stay and peaks.climb_to(excursion)
            shown = peaks.shown(excursion)
            if not climbs and self._is_programs(shown):
                yield ExcursionEvent(step, channel, shown, updated)

    def _peaks_of(self, excursion: Excursion) -> ResidentPeaks:
        """The stretch in which an excursion lies, which may be told long after it."""
        return self._peaks_in(excursion.first_step, excursion.last_step)

    def _peaks_in(self, first: int, last: int) -> ResidentPeaks:
        stretches = (self._resident_peaks, *reversed(self._earlier_peaks))
        return next((peaks for peaks in stretches if peaks.have(first, last)), self._resident_peaks)

    def _higher_peak(self, channel: Channel, excursion: Excursion) -> Excursion | None:
        """Resident peaks in the steps of an excursion of what is alive, where they tell more of it."""
        if channel is not Channel.ALLOCATED or excursion.kind is ExcursionKind.SHIFT:
            return None
        peaks = self._peaks_of(excursion).of(excursion)
        is_higher = peaks is not None and self._is_programs(peaks) and peaks.height > excursion.height
        return peaks if is_higher else None

    def _is_programs(self, excursion: Excursion) -> bool:
        """Whether a resident peak is high as the screens show it, and not by pages that a recording had given back.

        Of a change of level most must show there: what each step needs of memory that is free anyway costs nothing.
        """
        is_mostly_kept = (excursion.kept or 0) > _MOSTLY * excursion.height
        if excursion.kind is ExcursionKind.SHIFT:
            return not is_mostly_kept
        is_refill = self.free_heap.gave_back and is_mostly_kept
        return not is_refill and self._is_high(excursion, excursion.usual)

    def _is_high(self, excursion: Excursion, usual: float) -> bool:
        return excursion.height >= self._spike_share * usual

    def _are_alike(self, columns: Any, count: int) -> bool:
        """Whether flags, capacities and what is missing are the same in all rows."""
        levels = [columns.peak_allocated, columns.live_blocks]
        if columns.peak_allocated[0] is not None:
            # a heap without exact peaks may be read now and then only: its levels are judged one by one anyway
            levels += [columns.allocated, columns.reserved]
        return not (
            True in columns.profiled
            or any(column.count(None) % count for column in levels)
            or any(column.count(column[0]) != count for column in (columns.host_available, columns.device_total))
            or (not self._is_updating and columns.updated[0] != columns.updated[-1])
            or columns.step[0] <= self._warmup
        )

    def _begin_updates(self) -> None:
        """An optimizer has stepped for the first time, and created its state: what was usual before is not compared.

        Where steps are micro-batches of gradient accumulation, this is after the warm-up steps.
        """
        self._is_updating = True
        for test in self._spikes.values():
            test.rebase()

    def _resume(self) -> None:
        self._interrupted = False
        self.free_heap.end_recording()
        for channel in self.channels.values():
            channel.interrupt()
        for test in self._spikes.values():
            test.rebase()
        self._earlier_peaks.append(self._resident_peaks)
        self._resident_peaks = ResidentPeaks(self._resident_peaks.least_free)

    def _judge_device(self, columns: Any, events: list[Event]) -> None:
        steps, levels = columns.step, columns.allocated
        peaks = None if columns.peak_allocated[0] is None else columns.peak_allocated
        blocks = None if columns.live_blocks[0] is None else columns.live_blocks
        events += self.channels[Channel.ALLOCATED].extend_updated(columns.updated, steps, levels, peaks, blocks)
        if peaks is not None:
            self._judge_spikes(Channel.PEAK, columns.step, peaks, events)
        elif self.is_cpu:
            self._judge_resident_peaks(columns, events)
            self.heap_size.extend(*_known(columns.step, columns.reserved))
        self.levels.add(levels)
        steps, levels = _known(steps, levels)
        if levels:
            # after the resident peaks, in which its excursions may be told
            self._judge_spikes(Channel.ALLOCATED, steps, levels, events)

    def _judge_spikes(self, channel: Channel, steps: Sequence[int], values: Sequence[int], events: list[Event]) -> None:
        excursions = self._spikes[channel].extend(steps, values)
        events += self._excursion_events(channel, excursions)

    def _judge_resident_peaks(self, columns: Any, events: list[Event]) -> None:
        """Judge the steps' resident peaks, less what malloc had free when they began.

        malloc keeps what a spike has freed, or gives it back, as it happens to lie: the resident peak alone would
        call the first a change of level. Steps shorter than the peak's readings have none of their own. Where malloc's
        counters are rationed, what was free at the last reading and the resident memory's change since are taken.
        """
        peaks: list[ResidentPeak] = []
        for at, peak in enumerate(columns.host_peak_rss):
            if at:
                self.free_heap.note(columns, at - 1)
            free = self.free_heap.at_last_end()
            if peak is not None and free is not None:
                peaks.append(ResidentPeak(columns.step[at], peak, max(peak - free, 0), self.free_heap.absent))
        if peaks:
            self._resident_peaks.extend(peaks)
            self._judge_spikes(Channel.HOST, [each.step for each in peaks], [each.level for each in peaks], events)

    def _judge_host(self, columns: Any, events: list[Event]) -> None:
        values = columns.host_rss
        if self._has_private or columns.host_private[0] is not None:
            self._has_private = True
            values = columns.host_private
        self.resident_levels.add(columns.host_rss)
        alive, host = self.channels[Channel.ALLOCATED], self.channels[Channel.HOST]
        if self.is_cpu and alive.fallen != self._fallen:
            host.note_fall(alive.fallen - self._fallen)
            self._fallen = alive.fallen
        events += host.extend(*_known(columns.step, values))

    def _judge_heap(self, columns: Any, events: list[Event]) -> None:
        """Judge malloc's figures beside an accelerator, without steps in which tbmem's own records lie in the heap."""
        heap = self.channels[Channel.HEAP]
        if columns.profiled[0]:
            if not self._heap_interrupted:
                self._heap_interrupted = True
                heap.interrupt()
        elif columns.host_heap.count(None) < len(columns.step) or self._has_heap:
            self._has_heap, self._heap_interrupted = True, False
            events += heap.extend_updated(columns.updated, columns.step, columns.host_heap, None, None)

    def _judge_workers(self, columns: Any, events: list[Event]) -> None:
        last, read_at = self._workers
        workers = columns.workers_private if columns.workers_private[-1] is not None else columns.workers_rss
        if workers[-1] is None or (workers[-1] == last and columns.time[-1] < read_at + _WORKERS_SECONDS):
            return
        for step, value, time in zip(columns.step, workers, columns.time, strict=True):
            last, read_at = self._workers
            if value is None or (value == 0 and last <= 0):
                continue  # there are none yet
            if value != last or time >= read_at + _WORKERS_SECONDS:
                self._workers = (value, time)
                events += self.channels[Channel.WORKERS].extend((step,), (value,))

    def _note_capacity(self, columns: Any) -> None:
        total = columns.device_total[0]
        if not total:
            return
        self.channels[Channel.ALLOCATED].total = None if self.is_cpu else total
        available, before = columns.host_available[0], columns.host_rss[0]
        if available != self._room[0]:
            self._room = available, before
        available, before = self._room
        if available is not None and before is not None and columns.host_rss[-1] is not None:
            # it is read once a second, in which a leak of a fast loop takes much of it
            available = max(available - max(columns.host_rss[-1] - before, 0), 0)
        for channel in self.channels.values():
            channel.available = available


def _known(steps: Sequence[int], values: Sequence[int | None]) -> tuple[Sequence[int], Sequence[int]]:
    """The steps whose value was read, and the values."""
    if None not in values:
        return steps, values  # type: ignore[return-value]
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    return [step for step, _ in known], [value for _, value in known]


def _order(event: Event) -> tuple[int, int, bool]:
    if not isinstance(event, ExcursionEvent):
        return event.step, 0, False
    return event.step, -event.shown[1].height, event.channel is not Channel.ALLOCATED


def _channels(patterns: PatternsConfig) -> dict[Channel, GrowthChannel]:
    patience, percent = patterns.patience, patterns.min_growth_percent
    channels = {}
    for channel in (Channel.ALLOCATED, Channel.HEAP):
        exact = GrowthTest(patience=patience, min_growth=parse_bytes(patterns.min_growth), min_growth_percent=percent)
        channels[channel] = GrowthChannel(channel, exact)
    for channel, readings in ((Channel.HOST, patience), (Channel.WORKERS, min(patience, _WORKERS_PATIENCE))):
        resident = GrowthTest(
            patience=readings,
            min_growth=max(parse_bytes(patterns.min_growth), RESIDENT_GROWTH),
            min_growth_percent=percent,
            suspicious=_RESIDENT_SUSPICIOUS,
            rises=_RESIDENT_RISES,
        )
        channels[channel] = GrowthChannel(channel, resident, 2 * BLOCK)
    return channels
