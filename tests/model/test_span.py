"""Phases and modules as a line and as plain values."""

from __future__ import annotations

import json

from tbmem.model.span import ModuleMemory, PhaseMemory, as_plain

PHASE = PhaseMemory(
    name="forward", device="cpu", calls=2, peak=2048, allocated=100, net=-1024, by_category={"INPUT": 1}
)
MODULE = ModuleMemory(name="", kind="Net", device="cpu", calls=1, allocated=1024, kept=0, saved=0, peak=4096)


def test_a_line() -> None:
    assert repr(PHASE) == "forward on cpu: peak 2.00 KiB, net -1.00 KiB, 2 calls"
    assert repr(MODULE) == "(model) (Net): allocated 1.00 KiB, saved 0 B, peak 4.00 KiB"


def test_plain_values() -> None:
    (phase,) = as_plain((PHASE,))
    (module,) = as_plain((MODULE,))

    assert json.loads(json.dumps(phase)) == phase
    assert (phase["by_category"], module["kind"]) == ({"INPUT": 1}, "Net")
