from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

import psutil
import pytest
import torch

from tbmem.errors import ConfigError
from tbmem.model.sample import DeviceReading, MemorySample
from tbmem.runtime.monitor import MemoryMonitor
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.sampler import Counters
from tests.sources.fakes import GIB, MIB, FakeCuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A machine with two GPUs, in use by nobody."""
    fake = FakeCuda(devices=2, initialized=False)
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


MakeCounters = Callable[..., Counters]


@pytest.fixture
def make_counters() -> Iterator[MakeCounters]:
    """Counters that are closed after the test: ``make_counters("cuda:0", reset_peaks=False)``."""
    made: list[Counters] = []

    def make(devices: str = "auto", **options: object) -> Counters:
        host = HostMemory(reset_peaks=bool(options.get("reset_peaks", True)), workers=False)
        made.append(Counters(devices, host, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for counters in made:
        counters.close()


def _one(samples: Sequence[MemorySample]) -> MemorySample:
    (sample,) = samples
    return sample


def test_a_sample_joins_device_and_host(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(5 * MIB)
    counters = make_counters(rank=3)
    # when
    sample = _one(counters.sample(7, thorough=False, profiled=True))
    # then
    assert (sample.step, sample.rank, sample.device, sample.profiled) == (7, 3, "cuda:0", True)
    assert (sample.allocated, sample.reserved, sample.active) == (5 * MIB, 6 * MIB, 5 * MIB)
    assert (sample.inactive_split, sample.live_blocks) == (1 * MIB, 1)
    assert (sample.alloc_retries, sample.ooms) == (0, 0)
    assert sample.device_total == 80 * GIB
    assert sample.host_rss == pytest.approx(psutil.Process().memory_info().rss, abs=32 * MIB)
    assert sample.host_available is not None


def test_what_was_before_the_run_is_not_its_first_peak(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given a checkpoint that was loaded and freed before the loop
    cuda.malloc(4 * MIB)
    cuda.spike(512 * MIB)
    # when
    counters = make_counters()
    cuda.spike(8 * MIB)
    # then
    assert _one(counters.sample(1, thorough=False)).peak_allocated == 12 * MIB


def test_memory_in_the_middle_of_a_step_is_read_beside_the_peaks(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(4 * MIB)
    counters = make_counters()
    counters.sample(1, thorough=False)
    # when
    address = cuda.malloc(512 * MIB)
    meanwhile, heights = counters.meanwhile(), counters.heights()
    cuda.free(address)
    # then
    assert meanwhile == {"cuda:0": (516 * MIB, 4 * MIB)}
    assert heights == {"cuda:0": (512 * MIB, None)}
    assert _one(counters.sample(2, thorough=False)).peak_allocated == 516 * MIB


def test_what_malloc_hands_out_in_a_step_is_read_beside_the_resident_memory(make_counters: MakeCounters) -> None:
    # given
    counters = make_counters("cpu")
    counters.sample(1, thorough=False)
    # when
    block = bytearray(64 * MIB)
    [(height, allocated)] = counters.heights().values()
    # then
    assert allocated == pytest.approx(len(block), abs=4 * MIB)
    assert height >= allocated
    # and alone, in half the time
    [(height, allocated)] = counters.heights(quickly=True).values()
    assert height == allocated == pytest.approx(len(block), abs=4 * MIB)


def test_the_first_peak_of_a_device_used_later_is_in_the_run(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given a program that uses no device yet
    counters = make_counters()
    # when its first step does
    cuda.malloc(4 * MIB)
    cuda.spike(512 * MIB)
    # then
    assert _one(counters.sample(1, thorough=False)).peak_allocated == 516 * MIB


def test_the_hosts_counters_are_in_the_order_of_the_samples_last_fields(make_counters: MakeCounters) -> None:
    # given
    counters = make_counters("cpu")
    host = counters._host
    host.available, host.workers_rss, host.workers_private = 1, 2, 3
    # when
    sample = _one(counters.sample(1, thorough=False))
    # then
    first = MemorySample._fields.index("host_rss")
    assert len(MemorySample._fields) == first + len(host.counters(None))
    assert (sample.host_rss, sample.host_private) == (host.resident, host.private)
    assert (sample.host_available, sample.workers_rss, sample.workers_private) == (1, 2, 3)
    assert host.counters(4)[1] == 4


def test_mallocs_figures_are_read_beside_accelerators_once_a_step(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(MIB)
    beside, alone = make_counters("cuda:0,cuda:1"), make_counters("cpu")
    # when
    first, second = beside.sample(1, thorough=False)
    # then: of several devices the first has it, and the CPU's own figures are malloc's anyway
    assert first.host_heap is not None
    assert first.host_rss is not None
    assert 0 < first.host_heap < 4 * first.host_rss
    assert (second.host_heap, second.host_rss) == (None, first.host_rss)
    assert _one(alone.sample(1, thorough=False)).host_heap is None


def test_a_counter_that_is_not_there_is_none(make_counters: MakeCounters) -> None:
    # given the CPU, and no thread that looks at workers
    counters = make_counters("cpu", reset_peaks=False)
    # when
    sample = _one(counters.sample(1, thorough=False))
    # then
    for name in ("active", "inactive_split", "live_blocks", "alloc_retries", "ooms"):
        assert getattr(sample, name) is None
    assert (sample.peak_allocated, sample.peak_reserved) == (None, None)
    assert (sample.host_peak_rss, sample.workers_rss) == (None, None)


def test_the_driver_is_asked_in_thorough_samples_only(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters()
    cuda.calls.clear()
    # when
    cheap = [_one(counters.sample(step, thorough=False)) for step in range(1, 20)]
    asked = cuda.calls["mem_get_info"]
    cuda.used_by_others = GIB
    thorough = _one(counters.sample(20, thorough=True))
    # then
    assert asked == 0
    assert {sample.device_used for sample in cheap} == {2 * MIB}
    assert thorough.device_used == GIB + 2 * MIB
    assert cuda.calls["mem_get_info"] == 1


def test_peaks_of_the_run_are_never_reset(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters(reset_peaks=False)
    # when
    peaks = []
    for step, spike in enumerate((20, 10, 30), start=1):
        cuda.spike(spike * MIB)
        peaks.append(_one(counters.sample(step, thorough=False)).peak_allocated)
    # then
    assert peaks == [22 * MIB, None, 32 * MIB]
    assert cuda.calls["reset_peak_memory_stats"] == 0


def test_two_monitors_both_see_the_spike(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    both = [make_counters(), make_counters()]
    # when
    cuda.spike(64 * MIB)
    peaks = [_one(counters.sample(1, thorough=False)).peak_allocated for counters in both]
    # then
    assert peaks == [66 * MIB, 66 * MIB]
    assert [_one(counters.sample(2, thorough=False)).peak_allocated for counters in both] == [2 * MIB, 2 * MIB]


def test_peaks_of_tbmems_own_doing_can_be_discarded(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters()
    counters.sample(1, thorough=False)
    # when
    cuda.spike(64 * MIB)
    counters.discard_peaks()
    # then
    assert _one(counters.sample(2, thorough=False)).peak_allocated == 2 * MIB


def test_an_accelerator_that_is_used_late_is_found_at_steps_1_2_4_8(
    cuda: FakeCuda, make_counters: MakeCounters
) -> None:
    # given a process that uses no GPU yet
    counters = make_counters()
    seen = {}
    # when it begins to in step 5
    for step in range(1, 10):
        if step == 5:
            cuda.malloc(2 * MIB)
        seen[step] = [sample.device for sample in counters.sample(step, thorough=False)]
    # then
    assert {step: names for step, names in seen.items() if names == ["cpu"]}.keys() == {1, 2, 3, 4, 5, 6, 7}
    assert seen[8] == seen[9] == ["cuda:0"]


def test_devices_are_looked_for_at_powers_of_two(make_counters: MakeCounters) -> None:
    # given
    looked: list[int] = []
    step = 0

    def find() -> Sequence[str]:
        looked.append(step)
        return ["cpu"]

    counters = make_counters(find_devices=find)
    # when
    for step in range(1, 18):
        counters.sample(step, thorough=False)
    # then
    assert looked == [0, 1, 2, 4, 8, 16]


def test_a_second_device_joins_the_first(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB, device=1)
    counters = make_counters()
    # when
    cuda.malloc(2 * MIB, device=0)
    samples = counters.sample(2, thorough=False)
    # then
    assert list(counters._devices) == ["cuda:1", "cuda:0"]
    assert [sample.device_total for sample in samples] == [80 * GIB, 80 * GIB]


def test_a_gpu_that_is_empty_for_a_moment_stays_the_only_device(make_counters: MakeCounters) -> None:
    # given a program that freed everything and emptied its cache just before step 4
    found = {3: ["cuda:0"], 4: ["cpu"]}
    cuda = FakeCuda()
    names = found[3]
    counters = make_counters(find_devices=lambda: names, open_one=lambda name: _open(cuda, name))
    # when
    names = found[4]
    samples = counters.sample(4, thorough=False)
    # then the CPU does not join as a second device
    assert [sample.device for sample in samples] == ["cuda:0"]


def _open(cuda: FakeCuda, name: str) -> object:
    from tbmem.sources.counters.devices import CachingDevice

    return CachingDevice(cuda, name.partition(":")[0], 0, reset_peaks=True)


def test_named_devices_are_taken_as_they_are(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # when
    counters = make_counters(" cuda:1 , cpu ")
    # then
    assert list(counters._devices) == ["cuda:1", "cpu"]
    assert [sample.device for sample in counters.sample(1, thorough=True)] == ["cuda:1", "cpu"]


def test_a_named_device_that_was_never_used_is_not_woken_up(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    counters = make_counters("cuda:0")
    # when
    sample = _one(counters.sample(1, thorough=True))
    # then no context was made, which would cost memory and break a later fork
    assert sample.allocated is None
    assert not cuda.initialized


def test_an_unknown_device_is_one_clear_line(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # when
    with pytest.raises(ConfigError, match=r"^monitor\.devices: no device 'cuda:7' here; set auto or") as caught:
        make_counters("cuda:0,cuda:7")
    # then
    assert "\n" not in str(caught.value)


def test_a_capture_in_progress_keeps_the_driver_alone(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters()
    cuda.calls.clear()
    # when
    cuda.capturing = True
    sample = _one(counters.sample(1, thorough=True))
    # then
    assert cuda.calls["mem_get_info"] == 0
    assert sample.allocated == 2 * MIB


def test_the_capacity_is_still_known_while_a_graph_is_captured(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters()
    # when
    cuda.capturing = True
    sample = _one(counters.sample(1, thorough=True))
    # then
    assert sample.device_total == 80 * GIB


def test_nothing_forbidden_is_called(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters()
    # when
    for step in range(1, 33):
        counters.sample(step, thorough=step % 10 == 0)
    counters.refresh()
    counters.discard_peaks()
    # then nothing was raised, and these are all the calls there were
    assert set(cuda.calls) == {
        "is_available",
        "is_initialized",
        "device_count",
        "memory_reserved",
        "is_current_stream_capturing",
        "mem_get_info",
        "memory_stats_as_nested_dict",
        "reset_peak_memory_stats",
    }
    # one reading when the device is opened, one a step, one to discard
    assert cuda.calls["memory_stats_as_nested_dict"] == 1 + 32 + 1


def test_a_closed_reader_leaves_the_peaks_to_the_others(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    staying, leaving = make_counters(), make_counters()
    # when the other one reads a spike and ends
    cuda.spike(64 * MIB)
    leaving.sample(1, thorough=False)
    leaving.close()
    # then
    assert _one(staying.sample(1, thorough=False)).peak_allocated == 66 * MIB


def test_a_monitor_that_cannot_start_leaves_nothing_open(cuda: FakeCuda) -> None:
    # given
    HostMemory(workers=False).close()  # the process keeps one descriptor for the peak, from its first monitor on
    process = psutil.Process()
    before = process.num_fds()
    # when
    with pytest.raises(ConfigError):
        MemoryMonitor(devices="cuda:7", console=False).start()
    # then
    assert process.num_fds() == before


class _RestingDevice:
    """A CPU whose malloc is read every few milliseconds."""

    name = "cpu"

    def __init__(self, rest: float) -> None:
        self.rest = rest
        self.reads = 0

    def read(self) -> DeviceReading:
        self.reads += 1
        return DeviceReading(allocated=100, reserved=200)

    def read_usage(self) -> tuple[int, int] | None:
        return 1, 2

    def close(self) -> None:
        pass


def _resting(make_counters: MakeCounters, rest: float, updated: Callable[[], bool | None] | None = None) -> Counters:
    return make_counters("cpu", open_one=lambda name: _RestingDevice(rest), updated=updated)


def test_while_the_heap_rests_nothing_is_due(make_counters: MakeCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a machine on which the host's peak is not due either
    counters = _resting(make_counters, 0.005)
    monkeypatch.setattr(counters._host, "read_again_at", math.inf)
    # when
    sample = _one(counters.sample(1, thorough=True))
    # then steps are passed over for 50 ms, and not where the clock was put back
    answers = [counters.pass_over(sample.time + later) for later in (0.0, 0.0051, 0.0499, 0.0501, -3600)]
    assert answers == [True, True, True, False, False]


def test_a_long_step_and_each_fifth_have_a_sample_of_their_own(
    make_counters: MakeCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    now, read_at = 1000.0, []
    monkeypatch.setattr(time, "time", lambda: now)
    counters = _resting(make_counters, 1000.0)
    host = counters._host

    def read(at: float) -> None:
        read_at.append(round(1000 * (at - 1000)))
        host.read_again_at = at + 0.02

    monkeypatch.setattr(host, "read", read)
    # when steps take 10 ms, two of them 19, and later ones 5
    for step, end in enumerate((0, 10, 20, 30, 40, 50, 60, 79, 89, 108, 113, 118, 123, 129, 134), start=1):
        now = 1000 + end / 1000
        if not counters.pass_over(now):
            counters.sample(step, thorough=False)
            host.read_again_at = max(host.read_again_at, now)
    # then there is one in 50 ms, one of each long step, and one of the fifth short one
    assert read_at == [0, 50, 79, 108, 134]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [(0.02, [0, 50, 100, 150]), (0.06, [0, 60, 120, 180]), (1.0, [0, 50, 100, 150])],
    ids=["as often", "soon after", "long after"],
)
def test_what_is_due_soon_after_the_other_is_read_with_it(
    make_counters: MakeCounters, monkeypatch: pytest.MonkeyPatch, rest: float, expected: list[int]
) -> None:
    # given steps of 10 ms, and a host whose peak is due every 50
    now, sampled = 1000.0, []
    monkeypatch.setattr(time, "time", lambda: now)
    counters = _resting(make_counters, rest)
    host = counters._host
    monkeypatch.setattr(host, "interval", 0.05)
    monkeypatch.setattr(host, "read", lambda at: setattr(host, "read_again_at", at + 0.0499))
    # when
    for step in range(20):
        now = 1000 + step / 100
        if not counters.pass_over(now):
            counters.sample(step + 1, thorough=False)
            sampled.append(10 * step)
    # then
    assert sampled == expected


def test_a_limit_that_the_program_sets_holds_for_all_of_a_sample(make_counters: MakeCounters) -> None:
    # given
    counters = make_counters("cpu")
    counters.sample(1, thorough=True)
    host = counters._host
    # when the limit has been read, between two samples for which usage is
    host.total, host.available = 2 * GIB, GIB
    sample = _one(counters.sample(2, thorough=False))
    # then
    assert (sample.device_total, sample.device_used, sample.host_available) == (2 * GIB, GIB, GIB)


def test_while_the_hosts_peak_is_on_credit_each_step_is_sampled(make_counters: MakeCounters) -> None:
    # given
    counters = _resting(make_counters, 1000.0)
    # when
    sample = _one(counters.sample(1, thorough=True))
    # then
    assert counters._host.read_again_at < sample.time
    assert not counters.pass_over(sample.time + 1e-4)


def test_a_device_that_never_rests_is_always_due(cuda: FakeCuda, make_counters: MakeCounters) -> None:
    # given
    cuda.malloc(2 * MIB)
    counters = make_counters()
    # when
    counters.sample(1, thorough=True)
    # then
    assert counters.quiet_until == -math.inf


def test_steps_that_were_passed_over_come_with_the_next_sample(
    make_counters: MakeCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an optimizer that steps at every other step
    stepped = iter([True, False, True, False])
    counters = _resting(make_counters, 0.005, lambda: next(stepped))
    monkeypatch.setattr(counters._host, "read_again_at", math.inf)
    first = _one(counters.sample(7, thorough=True))
    # when two steps are passed over
    assert counters.pass_over(first.time + 0.001)
    assert counters.pass_over(first.time + 0.002)
    samples = counters.sample(10, thorough=False)
    # then all are there, in order, and say what they know
    assert [sample.step for sample in samples] == [8, 9, 10]
    assert [sample.updated for sample in samples] == [False, True, False]
    assert [sample.allocated for sample in samples] == [None, None, 100]
    assert [sample.host_peak_rss for sample in samples[:2]] == [None, None]
    assert [round(sample.time - first.time, 6) for sample in samples[:2]] == [0.001, 0.002]
    assert samples[0].host_rss == first.host_rss
    assert samples[0].device_total == first.device_total
    # and once only
    assert counters.passed(10) == []


def test_a_device_is_looked_for_although_its_step_was_passed_over(make_counters: MakeCounters) -> None:
    # given
    looked: list[int] = []
    step = 0

    def find() -> Sequence[str]:
        looked.append(step)
        return ["cpu"]

    counters = make_counters(find_devices=find)
    # when the eighth step and some more are passed over
    for step in (1, 2, 3, 4, 5, 13, 14, 15, 16):
        counters.sample(step, thorough=False)
    # then
    assert looked == [0, 1, 2, 4, 13, 16]
