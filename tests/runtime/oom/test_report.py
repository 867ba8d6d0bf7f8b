"""Reports of failed requests and out-of-memory exceptions; figures of the 80 GiB device are worked out by hand."""

from __future__ import annotations

import pytest
import torch

from tbmem.model.oom import Cause, Limit, OomReport, RunContext
from tbmem.model.sample import MemorySample
from tbmem.runtime.oom.cuda_observer import FailedRequest
from tbmem.runtime.oom.report import brief_device_report, device_report, error_report, host_report
from tbmem.sources.counters.memory_limits import HostState
from tbmem.units import GIB, MIB
from tests.sources.torch_state.test_out_of_memory import CPU_ERROR, CUDA_ERROR

SAMPLE = MemorySample(
    step=6,
    time=0.0,
    device="cuda:0",
    allocated=60 * GIB,
    active=61 * GIB,
    reserved=70 * GIB,
    inactive_split=5 * GIB,
    device_total=80 * GIB,
)
SITUATION = RunContext(step=7, last={"cuda:0": SAMPLE})


def test_the_counters_alone_explain_a_request() -> None:
    # when 12 GiB are requested of a device with 8 GiB free
    report = brief_device_report(FailedRequest(0, 12 * GIB, 80 * GIB, 8 * GIB), SITUATION)

    # then of the 70 GiB reserved 61 are active, 5 lie between used blocks, and the other 4 are cached
    event = report.shortage
    assert (event.device, event.step, event.requested) == ("cuda:0", 7, 12 * GIB)
    assert event.limits == (Limit(name="the device", total=80 * GIB, free=8 * GIB),)
    assert event.pieces is not None
    assert (event.pieces.active, event.pieces.fragmented, event.pieces.cached) == (61 * GIB, 5 * GIB, 4 * GIB)
    assert event.pieces.largest_free is None
    assert event.process == 70 * GIB
    assert Cause.FRAGMENTATION in [reason.cause for reason in report.reasons]
    assert report.holdings == ()


@pytest.mark.parametrize(
    ("allowed", "free", "left"),
    [
        (72 * GIB, 8 * GIB, 2 * GIB),  # 72 allowed, 70 reserved
        (79 * GIB, 3 * GIB, 3 * GIB),  # 9 to go, but the device has 3
        (64 * GIB, 8 * GIB, 0),  # the share was made smaller while more was reserved
    ],
)
def test_a_process_that_may_use_a_share_is_limited_by_it(allowed: int, free: int, left: int) -> None:
    event = brief_device_report(FailedRequest(0, 12 * GIB, allowed, free), SITUATION).shortage

    assert event.limits[0] == Limit(name="this process's share of the device", total=allowed, free=left)
    assert event.limits[1] == Limit(name="the device", total=80 * GIB, free=free)


def test_without_a_sample_the_allocators_own_figures_serve() -> None:
    event = brief_device_report(FailedRequest(1, GIB, 80 * GIB, MIB), RunContext(step=1)).shortage

    assert (event.device, event.device_total, event.pieces, event.process) == ("cuda:1", 80 * GIB, None, None)


def test_a_snapshot_gives_the_pieces_and_of_another_device_none() -> None:
    # given a segment of 10 GiB: 6 GiB used, and a gap of 4 GiB
    blocks = [
        {"size": 6 * GIB, "requested_size": 6 * GIB, "state": "active_allocated", "frames": []},
        {"size": 4 * GIB, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {"device": 0, "address": 4096, "total_size": 10 * GIB, "stream": 0, "blocks": blocks}
    request = FailedRequest(0, 5 * GIB, 80 * GIB, GIB)

    # when
    known = device_report(request, SITUATION, {"segments": [segment], "device_traces": [[]]}).shortage.pieces
    unknown = device_report(request, SITUATION, {"segments": [segment | {"device": 1}]}).shortage.pieces

    # then
    assert known is not None
    assert (known.active, known.fragmented, known.largest_free) == (6 * GIB, 4 * GIB, 4 * GIB)
    assert unknown is not None
    assert unknown.reserved == SAMPLE.reserved


def _report_of(error: BaseException, mebibytes: int = 0) -> OomReport:
    """The report of an error raised by a function with so much in a variable."""

    def train() -> None:
        large = torch.ones(mebibytes * MIB // 4)
        assert large.sum() == large.numel()
        raise error

    with pytest.raises(type(error)) as caught:
        train()
    return error_report(caught.value, SITUATION)


def test_an_exception_of_the_host_names_what_its_frames_hold() -> None:
    report = _report_of(CPU_ERROR, mebibytes=64)

    event = report.shortage
    assert (event.device, event.requested, event.error) == ("cpu", 4_000_000_000, "RuntimeError")
    assert "in " in event.line
    assert event.line.endswith("train()")
    assert event.limits
    (holder,) = [each for each in report.holdings if "large" in each.name]
    assert holder.bytes == 64 * MIB
    assert report.seen >= holder.bytes


def test_an_exception_of_a_device_uses_its_last_sample() -> None:
    event = _report_of(CUDA_ERROR).shortage

    assert (event.device, event.requested, event.process) == ("cuda:0", 2 * GIB, 70 * GIB)
    assert (event.limits, event.device_total) == ((), 80 * GIB)


def test_a_limit_that_comes_near_is_no_failed_request() -> None:
    limit = Limit(name="cgroup", total=GIB, free=40 * MIB)

    event = host_report(HostState((limit,), 64 * GIB, 32 * GIB, 900 * MIB), SITUATION).shortage

    assert event.only_near
    assert (event.limits, event.device_total, event.device_free) == ((limit,), 64 * GIB, 32 * GIB)
    assert event.process == 900 * MIB
