"""Quantities as the front end writes them: the same text as on the Python side."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tbmem import web
from tbmem.present.lines import device_label
from tbmem.units import GIB, KIB, MIB, TIB, format_bytes, format_speed

NODE = shutil.which("node")
SIZES = [
    0,
    1,
    1023,
    KIB,
    1536,
    345.87 * MIB,
    999.996 * MIB,
    1016.52 * MIB,
    1023.6 * MIB,
    -3 * MIB,
    7.005 * GIB,
    -0.2,
    5e3 * TIB,
]
CHANGES = {
    (0, 0): "unchanged",
    (0, 5): "new",
    (5, 0): "gone",
    (100, 104.8): "+4.8 %",
    (100, 95.5): "-4.5 %",
    (1, 262145): "262 145 times",
    (MIB, 25 * MIB): "25 times",
    (100, 999): "+899.0 %",
    (1e6, 1e6 - 1): "0.0 %",
}

DEVICES = ["cpu", "cuda:0", "mps", "xpu:1"]
SPEEDS = [0.4678, 12.34, 100, 12345.6]


@pytest.mark.skipif(NODE is None, reason="no node here")
def test_bytes_and_changes_read_the_same_in_the_tab() -> None:
    # given
    script = (Path(web.__file__).parent / "format.js").read_text()
    script += f"""
    const said = {{bytes: {json.dumps(SIZES)}.map(bytes),
      speeds: {json.dumps(SPEEDS)}.map(speed), devices: {json.dumps(DEVICES)}.map(deviceName),
      changes: {json.dumps(list(CHANGES))}.map(([before, after]) => relativeChange(before, after))}};
    console.log(JSON.stringify(said));"""
    # when
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-"], input=script, capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    # then
    assert said["bytes"] == [format_bytes(size) for size in SIZES]
    assert said["devices"] == [device_label(device) for device in DEVICES]
    assert [text.replace("\u202f", " ") for text in said["speeds"]] == [format_speed(one) for one in SPEEDS]
    assert [text.replace("\u202f", " ") for text in said["changes"]] == list(CHANGES.values())
