"""One more request in a state of the allocator."""

from __future__ import annotations

from tbmem.analysis.allocator.fit import fit_of
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.units import GIB, MIB, format_bytes
from tests.offline.snapshots import snapshot

STATE = timeline_of_snapshot(snapshot([64 * MIB, 30 * MIB], freed=[40 * MIB]))


def test_the_smallest_free_block_that_is_large_enough_takes_it() -> None:
    found = fit_of(STATE, 0, 20 * MIB, room=1 * GIB)

    assert found.fits
    assert found.sentence == f"A free block of {format_bytes(found.largest_free)} takes it."


def test_else_the_device_is_asked() -> None:
    found = fit_of(STATE, 0, 500 * MIB, room=2 * GIB)

    assert found.fits
    assert found.sentence.endswith(": 500.00 MiB more are reserved from the device.")


def test_a_device_of_unknown_size_is_told() -> None:
    found = fit_of(STATE, 0, 500 * MIB, room=None)

    assert found.device_free is None
    assert found.verdict == "fits if the device has room"


def test_what_does_not_fit_says_why() -> None:
    # given 40 MiB free between used blocks, and 10 MiB on the device
    found = fit_of(STATE, 0, 100 * MIB, room=int(STATE.segments.bytes.sum()) + 10 * MIB)

    assert not found.fits
    assert found.verdict == "does not fit"
    assert found.sentence.startswith("100.00 MiB could not be allocated")
    assert found.device_free == 10 * MIB
