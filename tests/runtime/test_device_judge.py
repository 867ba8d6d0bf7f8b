"""A device's last sample, peak and room, with and without a detector."""

from __future__ import annotations

from tbmem.analysis.detector.detector import Detector
from tbmem.runtime.device_judge import DeviceJudge
from tests.conftest import GIB, MakeSample


def test_samples_are_kept_and_judged(make_sample: MakeSample) -> None:
    # given a device that is nearly full in its second step
    samples = [make_sample(1, 9.0, 10.0), make_sample(2, 78.5, 79.0)]
    for detector in (None, Detector()):
        device = DeviceJudge(detector)
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
