"""The peak of a run, from samples and from rows of the log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tbmem.analysis.runs.device_history import RunPeak
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import RowBuilder, SampleRow
from tests.conftest import GIB, MakeSample
from tests.spikes import spike_in_a_window


def _cpu(step: int, resident: int | None, *, level: int = 10, profiled: bool = False) -> MemorySample:
    return MemorySample(
        step=step, time=step / 100, device="cpu", allocated=level, host_peak_rss=resident, profiled=profiled
    )


def _rows(samples: Sequence[MemorySample], every: int = 10) -> list[SampleRow]:
    builder = RowBuilder(every, began=0.0)
    return [*builder.add(samples), *builder.close()]


def _peaks(samples: Sequence[MemorySample]) -> tuple[RunPeak, RunPeak]:
    """Of the samples, and of the rows that the log has of them."""
    live, logged = RunPeak(), RunPeak()
    live.add(samples)
    for row in _rows(samples):
        logged.add_row(row)
    return live, logged


@pytest.mark.parametrize(
    ("samples", "bytes_", "step"),
    [
        pytest.param([_cpu(step, 100 + (step == 13)) for step in range(1, 31)], 101, 13, id="inside of a row"),
        pytest.param([_cpu(step, 100) for step in range(1, 31)], 100, 1, id="the first of equal ones"),
        pytest.param(
            [_cpu(step, 900 if step == 5 else 100 + step, profiled=4 <= step <= 6) for step in range(1, 31)],
            130,
            30,
            id="not the profiler's own",
        ),
        pytest.param([_cpu(step, 100 + step, profiled=True) for step in range(1, 6)], 105, 5, id="all profiled"),
        pytest.param(
            [_cpu(step, None if step % 2 else 100 + step, level=500) for step in range(1, 30)],
            128,
            28,
            id="peaks first",
        ),
        pytest.param([_cpu(step, None, level=50 - abs(step - 17)) for step in range(1, 31)], 50, 17, id="levels only"),
    ],
)
def test_the_log_has_the_same_peak_as_the_run_itself(samples: list[MemorySample], bytes_: int, step: int) -> None:
    for found in _peaks(samples):
        assert found.peak is not None
        assert (found.peak.bytes, found.peak.step) == (bytes_, step)


def test_on_an_accelerator_profiled_steps_count(make_sample: MakeSample) -> None:
    samples = [make_sample(step, 1.0, 9.0 if step == 3 else 2.0, profiled=step == 3) for step in range(1, 8)]

    for found in _peaks(samples):
        assert found.peak is not None
        assert (found.peak.bytes, found.peak.step, found.peak.headroom) == (9 * GIB, 3, 71 * GIB)


def test_headroom_is_known_where_the_capacity_is_and_never_less_than_nothing(make_sample: MakeSample) -> None:
    over, without = RunPeak(), RunPeak()
    over.add([make_sample(1, 81.0)])
    without.add([make_sample(1, 81.0, device_total=None)])

    assert over.peak is not None
    assert without.peak is not None
    assert (over.peak.headroom, without.peak.headroom) == (0, None)


def test_a_row_ends_where_the_profiler_goes_on_or_off() -> None:
    rows = _rows([_cpu(step, 100, profiled=4 <= step <= 6) for step in range(1, 11)])

    assert [(row.first_step, row.sample.step, row.sample.profiled) for row in rows] == [
        (1, 3, False),
        (4, 6, True),
        (7, 10, False),
    ]


def test_nothing_is_known() -> None:
    assert RunPeak().peak is None


def test_tbmems_own_is_left_out_of_a_spike_in_a_window_as_of_a_plain_one() -> None:
    # given: 50 bytes are tbmem's in all steps, and 20 more in the window; of two spikes that of step 20 needed more
    peaks = {5: 820, 20: 810}
    samples = [_cpu(step, peaks.get(step, 100), profiled=4 <= step <= 6)._replace(host_own=50) for step in range(1, 31)]
    for found in _peaks(samples):
        # when
        found.add_finding(spike_in_a_window(5, {"peak_bytes": 800, "left_out_bytes": 20}))
        # then
        assert found.peak is not None
        assert (found.peak.step, found.peak.bytes, found.peak.of_the_program) == (20, 810, 760)


@pytest.mark.parametrize(("needed", "bytes_", "step", "recorded"), [(800, 820, 5, None), (90, 130, 30, 820)])
def test_a_spike_in_a_window_counts_without_what_tbmem_had_added(
    needed: int, bytes_: int, step: int, recorded: int | None
) -> None:
    # given: step 5 is in a window, with 820 bytes, and what of them is the program's
    samples = [_cpu(step, 820 if step == 5 else 100 + step, profiled=4 <= step <= 6) for step in range(1, 31)]
    spike = spike_in_a_window(5, {"peak_bytes": needed, "left_out_bytes": 820 - needed})
    for found in _peaks(samples):
        # when
        found.add_finding(spike)
        # then
        assert found.peak is not None
        assert (found.peak.bytes, found.peak.step, found.peak.recorded) == (bytes_, step, recorded)
        assert found.peak.of_the_program == max(needed, 130)
