"""Nothing is collected inside, and afterwards the collector is as it was."""

from __future__ import annotations

import gc

import pytest

from tbmem.sources.gc_pause import gc_paused


def test_the_collector_pauses_and_goes_on() -> None:
    with gc_paused():
        assert not gc.isenabled()

    assert gc.isenabled()


def test_it_goes_on_after_an_error_too() -> None:
    with pytest.raises(ValueError, match="mine"), gc_paused():
        raise ValueError("mine")

    assert gc.isenabled()


def test_a_collector_that_the_program_keeps_off_stays_off() -> None:
    gc.disable()
    try:
        with gc_paused():
            pass

        assert not gc.isenabled()
    finally:
        gc.enable()
