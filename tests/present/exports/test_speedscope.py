"""Profiles for speedscope, read back as it reads them."""

from __future__ import annotations

import json

from tbmem.present.exports.speedscope import speedscope_json
from tests.present.exports.traces import traced


def test_speedscope() -> None:
    analysis = traced()

    data = json.loads(speedscope_json(analysis))

    peak, _end = data["profiles"]
    assert (peak["type"], peak["unit"], peak["name"]) == ("sampled", "bytes", "cpu at the peak")
    assert sum(peak["weights"]) == peak["endValue"] == analysis.main.peak.bytes
    frames = data["shared"]["frames"]
    assert all(0 <= number < len(frames) for sample in peak["samples"] for number in sample)
    assert {"name": "loss_of", "file": "/home/me/train.py", "line": 10} in frames
