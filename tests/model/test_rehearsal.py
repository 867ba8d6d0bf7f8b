"""Which process and device decide, and how much is left."""

from __future__ import annotations

from tests.rehearsal.records import GIB, process, rehearsal


def test_the_fullest_device_decides() -> None:
    result = rehearsal(process(0, reserved=10 * GIB), process(1, reserved=20 * GIB))

    assert result.fits
    assert result.worst[0].rank == 1
    assert result.headroom == 19 * GIB


def test_a_process_that_ran_out_of_memory_decides_before_a_fuller_one() -> None:
    result = rehearsal(process(0, reserved=38 * GIB), process(1, reserved=20 * GIB, out_of_memory=True))

    assert not result.fits
    assert result.worst[0].rank == 1


def test_what_is_needed_says_how_much_is_missing() -> None:
    result = rehearsal(process(reserved=38 * GIB, out_of_memory=True), needed=52 * GIB)

    assert result.headroom == -12 * GIB
