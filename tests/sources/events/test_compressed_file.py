"""Pickles and compressed files of unknown origin."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.errors import UnsafeFileError
from tbmem.sources.snapshot.reader import read_snapshot
from tests.sources.snapshot.snapshots import one_of_everything


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


@pytest.mark.parametrize("thing", [_Hostile(), {"segments": [_Hostile()]}, np.float64(1)])
def test_a_hostile_pickle_is_refused_and_nothing_ran(tmp_path: Path, monkeypatch: Any, thing: object) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(thing))

    with pytest.raises(UnsafeFileError, match=r"s\.pickle: the pickle asks for .*nothing was executed"):
        read_snapshot("s.pickle")

    assert not (tmp_path / "ran").exists()


def test_a_packed_snapshot_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "s.pickle.gz").write_bytes(gzip.compress(pickle.dumps(one_of_everything(), protocol=4)))

    assert read_snapshot(tmp_path / "s.pickle.gz").peak(0).bytes == 2200
