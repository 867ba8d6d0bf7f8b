"""The simulated device by itself: memory, streams, capture, ranks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rehearsal.conftest import CAPACITY, CONTEXT

MIB = 1 << 20
OUT_OF_MEMORY, INVALID_VALUE, INVALID_DEVICE = 2, 1, 101


@pytest.fixture
def allocate(device: Any) -> Iterator[Callable[[int], int]]:
    """Allocates bytes, which are given back after the test."""
    taken: list[int] = []

    def allocate(count: int) -> int:
        pointer = ctypes.c_size_t()
        assert device.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(count)) == 0
        taken.append(pointer.value)
        return pointer.value

    yield allocate
    for address in taken:
        device.cudaFree(ctypes.c_size_t(address))
    device.cudaGetLastError()


def write(device: Any, address: int, content: bytes) -> None:
    assert device.cudaMemcpy(ctypes.c_size_t(address), content, ctypes.c_size_t(len(content)), 1) == 0


def read(device: Any, address: int, count: int) -> bytes:
    buffer = ctypes.create_string_buffer(b"?" * count, count)
    assert device.cudaMemcpy(buffer, ctypes.c_size_t(address), ctypes.c_size_t(count), 2) == 0
    return buffer.raw


def free_bytes(device: Any) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    device.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    assert total.value == CAPACITY
    return free.value


def test_what_the_host_writes_it_reads_back(device: Any, allocate: Any) -> None:
    # given memory with a small and a large copy in it
    small, large = allocate(4096), allocate(8 * MIB)
    write(device, small, b"flags")
    write(device, large, b"x" * (2 * MIB))
    # when it is read, then the small one is there and the large one is zero
    assert read(device, small, 8) == b"flags\0\0\0"
    assert set(read(device, large, 2 * MIB)) == {0}


def test_copies_on_the_device_carry_what_is_known(device: Any, allocate: Any) -> None:
    # given a value and a range that nobody has written
    source, target = allocate(4096), allocate(4096)
    write(device, source, b"value")
    device.cudaMemcpy(ctypes.c_size_t(target), ctypes.c_size_t(source), ctypes.c_size_t(5), 3)
    assert read(device, target, 5) == b"value"
    # when something unknown is copied over it, then it is zero
    device.cudaMemcpy(ctypes.c_size_t(target), ctypes.c_size_t(source + 64), ctypes.c_size_t(5), 3)
    assert read(device, target, 5) == bytes(5)


def test_an_address_that_is_handed_out_again_is_empty(device: Any, allocate: Any) -> None:
    # given a block of torch's allocator with a value behind the next block
    segment = allocate(2 * MIB)
    for address in (segment, segment + 512):
        device.tbmem_device_allocated(ctypes.c_size_t(address))
        write(device, address, b"old")
    # when the first is freed and handed out again, then only its value is gone
    device.tbmem_device_freed(ctypes.c_size_t(segment))
    device.tbmem_device_allocated(ctypes.c_size_t(segment))
    assert read(device, segment, 3) == bytes(3)
    assert read(device, segment + 512, 3) == b"old"


def test_reads_of_what_nobody_wrote_are_told(device: Any, allocate: Any) -> None:
    # given an observer
    seen: list[int] = []
    observer = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(seen.append)
    device.tbmem_device_on_unknown_read(observer)
    try:
        address = allocate(4096)
        write(device, address, b"known")
        # when known and unknown bytes are read, then the unknown ones are told
        read(device, address, 5)
        assert seen == []
        read(device, address, 6)
        device.cudaMemset(ctypes.c_size_t(address), 0, ctypes.c_size_t(4096))
        read(device, address, 4096)
        assert seen == [6]
    finally:
        device.tbmem_device_on_unknown_read(None)


def test_a_device_holds_what_it_has_and_no_more(device: Any, allocate: Any) -> None:
    # given an empty device
    before = free_bytes(device)
    assert before == CAPACITY - CONTEXT
    # when it is filled, then pages of 2 MiB are counted, and the next request is refused
    allocate(1)
    allocate(before - 4 * MIB)
    assert free_bytes(device) == 2 * MIB
    pointer = ctypes.c_size_t()
    assert device.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(3 * MIB)) == OUT_OF_MEMORY
    assert device.cudaGetLastError() == OUT_OF_MEMORY
    assert device.cudaGetLastError() == 0
    assert device.cudaGetErrorString(OUT_OF_MEMORY) == b"out of memory"


def test_what_is_freed_twice_is_an_error(device: Any, allocate: Any) -> None:
    # given freed memory, when it is freed again, then CUDA's error says so
    address = allocate(4096)
    assert device.cudaFree(ctypes.c_size_t(address)) == 0
    assert device.cudaFree(ctypes.c_size_t(address)) == INVALID_VALUE
    assert device.cudaFree(None) == 0


def test_large_ranges_of_zeros_take_no_memory_of_the_host(device: Any, allocate: Any) -> None:
    # given a large block that is filled with zero, when it is cleared, then no page of it has become real
    import psutil

    address = allocate(512 * MIB)
    device.cudaMemset(ctypes.c_size_t(address), 0, ctypes.c_size_t(512 * MIB))
    before = psutil.Process().memory_info().rss
    device.tbmem_device_allocated(ctypes.c_size_t(address))
    assert psutil.Process().memory_info().rss - before < 16 * MIB


def test_devices_are_separate(device: Any, allocate: Any) -> None:
    # given two devices, when the second is used, then the first is as it was
    assert device.cudaSetDevice(1) == 0
    try:
        allocate(100 * MIB)
        assert free_bytes(device) == CAPACITY - CONTEXT - 100 * MIB
    finally:
        device.cudaSetDevice(0)
    assert free_bytes(device) == CAPACITY - CONTEXT
    assert device.cudaSetDevice(2) == INVALID_DEVICE
    device.cudaGetLastError()


def test_pools_keep_what_is_freed(device: Any) -> None:
    # given a pool of cudaMallocAsync with one block
    pool, pointer, reserved = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
    device.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
    assert device.cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(MIB), None) == 0
    # when it is freed, then 32 MiB stay reserved until they are trimmed
    assert device.cudaFreeAsync(ctypes.c_size_t(pointer.value), None) == 0
    device.cudaMemPoolGetAttribute(pool, 5, ctypes.byref(reserved))
    assert reserved.value == 32 * MIB
    device.cudaMemPoolTrimTo(pool, ctypes.c_size_t(0))
    device.cudaMemPoolGetAttribute(pool, 5, ctypes.byref(reserved))
    assert reserved.value == 0


def test_virtual_memory_counts_where_it_is_created(device: Any) -> None:
    # given reserved addresses, which cost nothing
    before, address, handle = free_bytes(device), ctypes.c_size_t(), ctypes.c_uint64()
    properties = (ctypes.c_int * 8)(1, 0, 1, 0)
    assert device.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(64 * MIB), 0, 0, 0) == 0
    assert free_bytes(device) == before
    # when memory is created and mapped there, then it counts until it is unmapped and released
    assert device.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(20 * MIB), properties, 0) == 0
    assert device.cuMemMap(address, ctypes.c_size_t(20 * MIB), 0, handle, 0) == 0
    device.cuMemRelease(handle)
    assert free_bytes(device) == before - 20 * MIB
    device.cuMemUnmap(address, ctypes.c_size_t(20 * MIB))
    assert free_bytes(device) == before
    device.cuMemAddressFree(address, ctypes.c_size_t(64 * MIB))


def test_a_capture_has_the_streams_that_join_it(device: Any) -> None:
    # given a capture and another stream that waits for an event of it
    origin, other, event, graph = (ctypes.c_void_p() for _ in range(4))
    status, nodes = ctypes.c_int(), ctypes.c_size_t()
    device.cudaStreamCreate(ctypes.byref(origin))
    device.cudaStreamCreate(ctypes.byref(other))
    device.cudaEventCreate(ctypes.byref(event))
    assert device.cudaStreamBeginCapture(origin, 0) == 0
    device.cudaEventRecord(event, origin)
    device.cudaStreamWaitEvent(other, event, 0)
    device.cudaStreamIsCapturing(other, ctypes.byref(status))
    assert status.value == 1
    # when it ends, then both are free again
    device.cuLaunchKernel(None, *[1] * 6, 0, other, None, None)
    assert device.cudaStreamEndCapture(origin, ctypes.byref(graph)) == 0
    device.cudaGraphGetNodes(graph, None, ctypes.byref(nodes))
    device.cudaStreamIsCapturing(other, ctypes.byref(status))
    assert (status.value, nodes.value) == (0, 1)


def test_one_process_is_any_rank(device: Any, allocate: Any) -> None:
    # given a communicator of rank 2 of 4, alone, and a value in memory
    group, rank = ctypes.c_void_p(), ctypes.c_int()
    identity = type("Identity", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * 128)]})()
    device.ncclGetUniqueId(ctypes.byref(identity))
    assert device.ncclCommInitRank(ctypes.byref(group), 4, identity, 2) == 0
    device.ncclCommUserRank(group, ctypes.byref(rank))
    assert rank.value == 2
    own, gathered = allocate(4096), allocate(4096)
    write(device, own, (5).to_bytes(8, "little"))
    sizes = (ctypes.c_size_t(own), ctypes.c_size_t(gathered), ctypes.c_size_t(1), 4)
    # when it is gathered and summed, then all others have the same
    device.ncclAllGather(*sizes, group, None)
    assert read(device, gathered, 32) == (5).to_bytes(8, "little") * 4
    device.ncclAllReduce(*sizes, 0, group, None)
    assert int.from_bytes(read(device, gathered, 8), "little") == 20


def test_recurrent_weights_are_told_where_they_are(device: Any) -> None:
    # given an LSTM of 10 inputs and 20 states with biases
    net, count, address = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    device.cudnnCreateRNNDescriptor(ctypes.byref(net))
    device.cudnnSetRNNDescriptor_v8(net, 0, 2, 2, 0, 0, 0, 0, 0, 10, 20, 20, 1, None, 0)
    # when its weights are asked for, then they are as many as torch's, biases last
    device.cudnnGetRNNWeightSpaceSize(None, net, ctypes.byref(count))
    assert count.value == 4 * (4 * 20 * (10 + 20) + 2 * 4 * 20)
    arguments = (None, net, 0, count, ctypes.c_size_t(4096), 5, None, None, None, ctypes.byref(address))
    device.cudnnGetRNNWeightParams(*arguments)
    assert address.value - 4096 == 4 * (4 * 20 * 30 + 5 * 20)
    device.cudnnDestroyRNNDescriptor(net)


def test_the_device_is_what_it_is_told_to_be(device: Any) -> None:
    # given a description in the environment, when attributes are asked for, then they are those of the card
    value = ctypes.c_int()
    found = {}
    for attribute in (16, 75, 76, 81):
        assert device.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0) == 0
        found[attribute] = value.value
    assert found == {16: 84, 75: 8, 76: 6, 81: 102400}


def test_managed_memory_is_the_hosts(device: Any) -> None:
    # given managed memory that is larger than the device
    before, pointer = free_bytes(device), ctypes.c_size_t()
    assert device.cudaMallocManaged(ctypes.byref(pointer), ctypes.c_size_t(4 * CAPACITY), 1) == 0
    # when the host writes there, then it reads that, and the device has as much as before
    ctypes.memset(pointer.value, 7, 3)
    assert (ctypes.string_at(pointer.value, 4), free_bytes(device)) == (b"\7\7\7\0", before)
    assert device.cudaMemPrefetchAsync(pointer, ctypes.c_size_t(4096), 0, None) == 0
    # then it is freed once
    assert [device.cudaFree(pointer), device.cudaFree(pointer)] == [0, INVALID_VALUE]
    device.cudaGetLastError()
