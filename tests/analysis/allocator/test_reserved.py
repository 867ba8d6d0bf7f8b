"""Reserved memory of a recording adds up to its curve at each event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tbmem.analysis.allocator.reserved import reserved_memory
from tbmem.sources.snapshot.reader import read_snapshot
from tests.conftest import CORPUS


@pytest.mark.parametrize("path", sorted((CORPUS / "snapshots").glob("*.pickle")), ids=lambda path: path.stem[:20])
def test_it_is_the_reserved_curve(path: Path) -> None:
    timeline = read_snapshot(path)
    for device in range(len(timeline.devices)):
        reserved, curve = reserved_memory(timeline, device), timeline.reserved_curve(device)
        for event, expected in zip(curve.event[::7].tolist(), curve.bytes[::7].tolist(), strict=True):
            now = reserved.at(event)

            assert int((now.end - now.begin).sum()) == expected
            # no address is reserved twice
            assert (now.begin[1:] >= now.end[:-1]).all()
        assert np.all(reserved.last > reserved.first)
