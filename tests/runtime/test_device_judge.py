"""A device's last sample, peak and room, with and without a detector."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tbmem.analysis.detector.detector import Detector
from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample
from tbmem.runtime.device_judge import DeviceJudge
from tests.conftest import GIB, MakeSample


def test_samples_are_kept_and_judged(make_sample: MakeSample) -> None:
    # given a device that is nearly full in its second step
    samples = [make_sample(1, 9.0, 10.0), make_sample(2, 78.5, 79.0)]
    for detector in (None, Detector()):
        device = DeviceJudge(lambda made=detector: made)  # type: ignore[misc]
        assert device.room is None
        # when
        findings = device.judge(samples)
        # then
        assert device.last is samples[-1]
        assert device.peak.peak is not None
        assert device.peak.peak.step == 2
        assert device.room is not None
        assert device.room < 2 * GIB
        assert bool(findings) == (detector is not None)


class _Fragile(Detector):
    """Fails in some of its updates, by their numbers."""

    def __init__(self, **errors: BaseException) -> None:
        super().__init__()
        self.errors = errors
        self.updates = 0

    def update_all(self, samples: Sequence[MemorySample]) -> list[Finding]:
        self.updates += 1
        if (error := self.errors.get(f"update_{self.updates}")) is not None:
            raise error
        return []


def test_a_detector_that_was_interrupted_may_fail_and_begins_anew(make_sample: MakeSample) -> None:
    # given one that an exception of the program's leaves half updated
    broken = {f"update_{number}": IndexError("deque index out of range") for number in (4, 6, 7, 8)}
    made = [_Fragile(update_2=KeyboardInterrupt(), **broken), _Fragile()]
    remaining = iter(made)
    device = DeviceJudge(lambda: next(remaining))
    device.judge([make_sample(1, 9.0, 10.0)])
    with pytest.raises(KeyboardInterrupt):
        device.judge([make_sample(2, 9.0, 10.0)])
    # when it fails two steps later, then that is passed over, for it knows what came before
    for step in (3, 4, 5):
        assert device.judge([make_sample(step, 9.0, 10.0)]) == []
    assert device.detector is made[0]
    # and when it goes on failing, another one takes its place
    for step in (6, 7, 8, 9):
        assert device.judge([make_sample(step, 9.0, 10.0)]) == []
    assert device.detector is made[1]
    assert (made[0].updates, made[1].updates) == (8, 1)


def test_one_that_fails_by_itself_is_an_error(make_sample: MakeSample) -> None:
    device = DeviceJudge(lambda: _Fragile(update_1=IndexError("of its own")))

    with pytest.raises(IndexError, match="of its own"):
        device.judge([make_sample(1, 9.0, 10.0)])


def test_the_recursion_limit_is_passed_over_and_counts_as_an_interruption(make_sample: MakeSample) -> None:
    device = DeviceJudge(lambda: _Fragile(update_1=RecursionError(), update_2=IndexError()))

    with pytest.raises(RecursionError):
        device.judge([make_sample(1, 9.0, 10.0)])
    assert device.judge([make_sample(2, 9.0, 10.0)]) == []
