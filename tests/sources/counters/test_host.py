from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tbmem.model.oom import CGROUP, Limit
from tbmem.sources.counters import host as host_module
from tbmem.sources.counters import memory_limits as host_limits
from tbmem.sources.counters.host import HostMemory
from tests.sources.fakes import GIB, MIB

_TENSOR = 200 * MIB

MakeHost = Callable[..., HostMemory]


@pytest.fixture
def make_host() -> Iterator[MakeHost]:
    """Hosts that are closed after the test."""
    made: list[HostMemory] = []

    def make(**options: Any) -> HostMemory:
        made.append(HostMemory(**{"workers": False, **options}))
        return made[-1]

    yield make
    for host in made:
        host.close()


def _tensor() -> torch.Tensor:
    """200 MiB, not malloc's, which may have as much free that is resident already."""
    return torch.frombuffer(mmap.mmap(-1, _TENSOR), dtype=torch.uint8).fill_(1)


def _touch_and_free() -> None:
    """200 MiB that were resident, and are not any more."""
    _tensor()


def _needs_peaks(host: HostMemory) -> None:
    if host.peak_rss() is None:
        pytest.skip("this kernel does not let a process reset its peak")


def test_resident_memory_agrees_with_psutil_and_the_kernel(make_host: MakeHost) -> None:
    # given
    host = make_host()
    # when
    rss = host.rss()
    # then
    assert rss == pytest.approx(psutil.Process().memory_info().rss, abs=4 * MIB)
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        assert rss == pytest.approx(int(line.split()[1]) * 1024, abs=4 * MIB)


def test_resident_memory_sees_a_tensor(make_host: MakeHost) -> None:
    # given
    host = make_host()
    before = host.rss()
    # when
    tensor = _tensor()
    # then
    assert host.rss() - before == pytest.approx(tensor.nbytes, rel=0.1)


def test_the_peak_sees_a_tensor_that_was_freed(make_host: MakeHost) -> None:
    # given
    host = make_host()
    _needs_peaks(host)
    before = host.rss()
    # when
    _touch_and_free()
    spiking, calm = host.peak_rss(), host.peak_rss()
    # then
    assert spiking is not None
    assert calm is not None
    assert spiking - before == pytest.approx(_TENSOR, rel=0.1)
    assert calm - before < _TENSOR / 2


def test_two_monitors_both_see_the_hosts_peak(make_host: MakeHost) -> None:
    # given
    first, second = make_host(), make_host()
    for host in (first, second):
        _needs_peaks(host)
    before = first.rss()
    # when
    _touch_and_free()
    peaks = [first.peak_rss(), second.peak_rss()]
    # then
    assert [peak - before for peak in peaks if peak is not None] == pytest.approx([_TENSOR, _TENSOR], rel=0.1)


def test_what_was_before_the_monitor_is_not_its_first_peak(make_host: MakeHost) -> None:
    # given the counter was used before, and then something large was loaded and freed
    earlier = make_host()
    _needs_peaks(earlier)
    earlier.close()
    _touch_and_free()
    # when
    host = make_host()
    peak = host.peak_rss()
    # then
    assert peak is not None
    assert peak - host.rss() < _TENSOR / 2


def test_a_peak_is_never_below_the_level(make_host: MakeHost) -> None:
    # given
    host = make_host()
    _needs_peaks(host)
    # when memory grows a little at each step, as a sample reads it: first the level, then the peak
    kept, readings = [], []
    for _ in range(50):
        kept.append(torch.ones(50_000, dtype=torch.uint8))
        readings.append((host.rss(), host.peak_rss()))
    # then
    assert [(rss, peak) for rss, peak in readings if peak is None or peak < rss] == []


def test_the_first_steps_have_their_own_peaks_and_long_loops_one_in_twenty_milliseconds(make_host: MakeHost) -> None:
    # given
    host = make_host()
    _needs_peaks(host)
    # when steps take a fifth of a millisecond
    read = []
    for number in range(5_000):
        now = 1e9 + number * 200e-6
        read.append(not host.read_at <= now < host.read_again_at)
        if read[-1]:
            host.read(now)
    # then
    assert all(read[:300])
    assert sum(read[-1000:]) == pytest.approx(10, abs=2)


def test_the_time_between_two_readings_can_be_longer(make_host: MakeHost) -> None:
    # given
    host = make_host(interval=0.08)
    _needs_peaks(host)
    # when the readings that may come at once are spent
    for number in range(600):
        host.read(1e9 + number * 1e-3)
    # then
    assert host.read_again_at == pytest.approx(1e9 + 599e-3 + 0.08)


def test_steps_that_are_no_shorter_take_nothing_from_what_short_ones_may_read(make_host: MakeHost) -> None:
    # given an evaluation after a thousand steps of 20 ms
    host = make_host()
    _needs_peaks(host)
    for number in range(1_000):
        host.read(1e9 + number * 0.0201)
    # when steps are short
    began, read = 1e9 + 30, []
    for number in range(1_000):
        now = began + number * 1e-3
        read.append(not host.read_at <= now < host.read_again_at)
        if read[-1]:
            host.read(now)
    # then the first have their own peaks; once that is spent, as many come as time allows
    assert all(read[:500])
    assert sum(read[600:]) == pytest.approx(400 * 1e-3 / 0.02, abs=2)


def test_a_clock_that_is_put_back_does_not_stop_the_readings(make_host: MakeHost) -> None:
    # given
    host = make_host()
    host.read(1e9)
    # when
    host.read(1e9 - 3600)
    # then
    assert host.read_again_at <= 1e9 - 3600 + 0.02


def test_peaks_of_the_run_never_reset_the_kernels_counter(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    def refuse(pid: int) -> None:
        raise AssertionError("clear_refs was opened")

    monkeypatch.setattr(host_module, "_shared_peak", refuse)
    # when
    host = make_host(reset_peaks=False)
    # then
    assert host.peak_rss() is None


def test_a_kernel_that_refuses_the_reset_gives_no_peak(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(host_module, "_shared_peak", lambda pid: None)
    # when
    host = make_host()
    # then
    assert host.peak_rss() is None
    assert host.rss() > 0


def test_a_system_without_proc_still_has_resident_memory(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(host_module, "_open", lambda path, flags: None)
    # when
    host = make_host(reset_peaks=False)
    # then
    assert host.rss() == pytest.approx(psutil.Process().memory_info().rss, abs=4 * MIB)


def test_a_peak_below_that_of_the_starting_process_is_true() -> None:
    # given a parent that once held far more than its child ever will
    program = (
        "import subprocess, sys\n"
        "held = bytearray(400 << 20)\n"
        "child = 'from tbmem.sources.counters.host import HostMemory; h = HostMemory(workers=False);'\n"
        "child += 'p = h.peak_rss();'\n"
        "child += 'print(h.rss(), p); h.close()'\n"
        "print(subprocess.check_output([sys.executable, '-c', child], text=True))\n"
    )
    # when
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    rss, peak = output.split()
    # then
    if peak == "None":
        pytest.skip("this kernel does not let a process reset its peak")
    assert int(peak) < int(rss) + 50 * MIB


def test_workers_memory_sees_a_child(make_host: MakeHost) -> None:
    # given
    host = make_host(workers=True)
    before = host.workers_rss
    assert before is not None
    program = "held = bytearray(80 << 20); print('ready', flush=True); input()"
    # when
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout is not None
        child.stdout.readline()
        host.refresh_workers()
        during = host.workers_rss
        child.communicate("\n")
    host.refresh_workers()
    # then
    assert during is not None
    assert 80 * MIB <= during - before < 160 * MIB
    assert host.workers_rss == before


def test_workers_are_not_looked_at_unless_wanted(make_host: MakeHost) -> None:
    # when
    host = make_host(workers=False)
    # then
    assert host.workers_rss is None


def test_total_and_available_are_the_machines(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(host_limits, "read_cgroup_memory", lambda _root: None)
    # when
    host = make_host()
    # then
    assert host.total == psutil.virtual_memory().total
    assert host.available == pytest.approx(psutil.virtual_memory().available, abs=GIB)


def test_a_container_has_no_more_than_its_limit(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    group = Limit(name=CGROUP, total=512 * MIB, free=5 * MIB)
    monkeypatch.setattr(host_limits, "read_cgroup_memory", lambda _root: group)
    # when
    host = make_host()
    # then
    assert (host.total, host.available) == (512 * MIB, 5 * MIB)


def test_a_limit_of_the_process_itself_counts_where_it_is_nearest(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given the addresses end (ulimit -v) before the machine's memory does
    own = Limit(name="RLIMIT_AS", total=64 * MIB, free=3 * MIB)
    monkeypatch.setattr(host_limits, "_own_limits", lambda: [own])
    # when
    host = make_host()
    # then
    assert (host.limit, host.available) == (own, 3 * MIB)
    # and what may be resident is what is, and what is left
    assert host.total == pytest.approx(host.rss() + 3 * MIB, abs=8 * MIB)


def test_closing_again_after_an_exception_of_the_program_closes_no_file_of_its_own(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a signal that comes when the descriptor has just been closed
    host, close = make_host(), os.close
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", lambda file: (close(file), signal.raise_signal(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt):
            host.close()
    # when the program opens a file, which gets its number, and it is closed again
    with open(__file__) as own:
        host.close()
        # then
        assert own.readline()


def test_closing_gives_the_descriptor_back_and_can_be_repeated(make_host: MakeHost) -> None:
    # given
    process = psutil.Process()
    make_host().close()  # the process keeps one descriptor for the peak, from its first monitor on
    before = process.num_fds()
    # when
    host = make_host()
    during = process.num_fds()
    host.close()
    host.close()
    # then
    assert during == before + 1
    assert process.num_fds() == before
