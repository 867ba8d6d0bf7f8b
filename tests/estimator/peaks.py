"""What several tests ask of a run."""

from __future__ import annotations

import numpy as np

from tbmem.model.simulated_run import SimulatedRun


def peak(run: SimulatedRun | Exception) -> int:
    """The most bytes alive at once."""
    assert isinstance(run, SimulatedRun), run
    change = np.zeros(max(run.alloc_event.max(), run.free_event.max()) + 1, dtype=np.int64)
    ended = run.free_event >= 0
    np.add.at(change, run.alloc_event, run.size)
    np.add.at(change, run.free_event[ended], -run.size[ended])
    return int(change.cumsum().max())
