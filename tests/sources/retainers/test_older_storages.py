"""What was alive when a recording began, and when it was freed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tbmem.model.trace_additions import OlderStorages
from tbmem.sources.retainers.older_storages import OlderStoragesTracker

pytestmark = pytest.mark.torch_versions


class Clock:
    def __init__(self) -> None:
        self.now = 100

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Iterator[OlderStoragesTracker]:
    watch = OlderStoragesTracker(clock)
    yield watch
    watch.forget()


def freed(found: OlderStorages | None, address: int) -> list[tuple[int, int]]:
    assert found is not None
    rows = np.flatnonzero(found.address == address)
    return list(zip(found.bytes[rows].tolist(), found.freed_ns[rows].tolist(), strict=True))


def test_a_storage_is_freed_when_its_last_tensor_dies(watch: OlderStoragesTracker, clock: Clock) -> None:
    stays, goes = torch.ones(256), torch.ones(512)
    view = goes[3:]
    addresses = stays.untyped_storage().data_ptr(), goes.untyped_storage().data_ptr()
    watch.begin()

    del goes
    clock.now = 200
    del view
    clock.now = 300
    found = watch.end()

    assert freed(found, addresses[0]) == [(1024, -1)]
    assert freed(found, addresses[1]) == [(2048, 200)]


def test_a_storage_that_another_took_the_place_of_was_freed_by_the_end(
    watch: OlderStoragesTracker, clock: Clock
) -> None:
    parameter = torch.nn.Parameter(torch.ones(256))
    address = parameter.untyped_storage().data_ptr()
    watch.begin()

    parameter.data = torch.ones(512)
    clock.now = 300

    assert freed(watch.end(), address) == [(1024, 300)]


def test_it_holds_nothing(watch: OlderStoragesTracker) -> None:
    tensor = torch.ones(256)
    dies = weakref.ref(tensor)
    gc.disable()
    try:
        watch.begin()
        del tensor
        assert dies() is None
        other = torch.ones(256)
        watch.begin()
        watch.end()
        assert weakref.getweakrefcount(other) == 0
    finally:
        gc.enable()


def test_what_the_allocator_has_not_given_out_is_left_out(watch: OlderStoragesTracker) -> None:
    shared, empty, meta = torch.ones(256).share_memory_(), torch.empty(0), torch.ones(3, device="meta")
    watch.begin()

    found = watch.end()

    assert freed(found, shared.untyped_storage().data_ptr()) == []
    assert freed(found, 0) == []
    assert (empty.numel(), meta.numel()) == (0, 3)


def test_without_a_begin_nothing_is_known(watch: OlderStoragesTracker) -> None:
    assert watch.end() is None
