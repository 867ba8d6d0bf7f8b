"""Samples go in, points of TensorBoard scalars come out, in an event file that every dashboard reads.

All in GiB unless the name says otherwise; with several devices in one process the tags of the second line apply.

    memory/allocated            held by tensors (CPU: handed out by malloc)
    memory/<device>/allocated   the same for one of several devices
    memory/reserved             held by the allocator
    memory/peak_allocated       largest since the last point
    memory/peak_reserved        largest since the last point
    memory/device_used          used on the device by all processes
    memory/host_rss             resident memory of this process
    memory/host_peak_rss        its largest since the last point
    memory/host_private         resident memory of this process that it shares with nobody
    memory/workers_rss          resident memory of its child processes
    memory/workers_private      memory of its child processes that they share with nobody
    memory/utilization_percent  peak in per cent of the device
    memory/alloc_retries        times that the allocator had to empty its cache, a count
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from tbmem.model.sample import MemorySample
from tbmem.present.crc32c import masked_crc32c, masked_crc32c_of_each
from tbmem.units import GIB

TAG_PREFIX = "memory"
GIB_TAGS = (
    "allocated",
    "reserved",
    "peak_allocated",
    "peak_reserved",
    "device_used",
    "host_rss",
    "host_peak_rss",
    "host_private",
    "workers_rss",
    "workers_private",
)
UTILIZATION_TAG = "utilization_percent"
COUNT_TAGS = ("alloc_retries",)
_FILE_VERSION = b"brain.Event:2"
_WRITER = b"tbmem.present.scalars"
_TOGETHER = 256
"""Records that are checksummed together; more would take megabytes."""
_NUMBER = count()


def scalar_values(sample: MemorySample, *, several: bool = False) -> Iterator[tuple[str, float]]:
    """The points of one sample.

    Args:
        sample: Counters of one device.
        several: Whether the process has more than one device, so that tags must name theirs.

    Yields:
        Tag and value for each counter that the device has.
    """
    prefix = f"{TAG_PREFIX}/{sample.device}" if several else TAG_PREFIX
    for name in GIB_TAGS:
        value = getattr(sample, name)
        if value is not None:
            yield f"{prefix}/{name}", value / GIB
    if sample.peak is not None and sample.device_total:
        yield f"{prefix}/{UTILIZATION_TAG}", 100 * sample.peak / sample.device_total
    for name in COUNT_TAGS:
        value = getattr(sample, name)
        if value is not None:
            yield f"{prefix}/{name}", float(value)


class ScalarWriter:
    """Writes points into one event file; all of a step's points are one record.

    TensorBoard's own writers bring a thread and a queue that can block, and build each record from objects; this one
    is called from tbmem's thread, and fills numbers into bytes that are the same at every step.

    Args:
        folder: The run folder.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        unique = f"{os.getpid()}.{next(_NUMBER)}"
        self.path = Path(folder) / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{unique}"
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115  (open as long as the run)
        self._file.write(_framed([first_event(time.time())]))

    def write(self, samples: Sequence[MemorySample], *, several: bool = False) -> None:
        """Add the points of samples.

        Args:
            samples: Any number, of one or more devices.
            several: Whether the process has more than one device.

        Raises:
            OSError: The file cannot be written.
        """
        points = [(sample, tuple(scalar_values(sample, several=several))) for sample in samples]
        events = [sample_event(sample.step, sample.time, found) for sample, found in points if found]
        for begin in range(0, len(events), _TOGETHER):
            self._file.write(_framed(events[begin : begin + _TOGETHER]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _framed(events: Sequence[bytes]) -> bytes:
    """Records as the file has them: length, its checksum, the event, its checksum."""
    checksums = masked_crc32c_of_each(events)
    parts = [
        part
        for event, checksum in zip(events, checksums, strict=True)
        for part in (_length(len(event)), event, checksum.to_bytes(4, "little"))
    ]
    return b"".join(parts)


@cache
def _length(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc32c(length))


# TensorBoard's messages on the wire: event.proto, summary.proto


def first_event(now: float) -> bytes:
    """The serialized ``Event`` that an event file begins with.

    Args:
        now: Unix time in seconds.
    """
    source = _field(1, _WRITER)
    return b"\x09" + struct.pack("<d", now) + _field(3, _FILE_VERSION) + _field(10, source)


def sample_event(step: int, now: float, points: Sequence[tuple[str, float]]) -> bytes:
    """The serialized ``Event`` with all points of one step.

    Args:
        step: Number of the step.
        now: Unix time in seconds.
        points: Tags and values, at least one.
    """
    tags, values = zip(*points, strict=True)
    number = _varint(step)
    pack, pieces = _event_layout(tags, len(number))
    pieces = [*pieces]
    pieces[1], pieces[3], pieces[5::2] = now, number, values
    return pack(*pieces)


@cache
def _event_layout(tags: tuple[str, ...], step_bytes: int) -> tuple[Callable[..., bytes], list[Any]]:
    """How an event with these tags is packed.

    Args:
        tags: Tags in order, at least one.
        step_bytes: Bytes that the step's number takes.

    Returns:
        A function that packs the event from its pieces, and the pieces; in place 1 goes the time, in 3 the step, in
        5, 7, ... the values.
    """
    # of a Value field 1 is the tag, field 2 the number: a float, five bytes with its key
    names = [_field(1, tag.encode()) for tag in tags]
    heads = [b"\x0a" + _varint(len(name) + 5) + name + b"\x15" for name in names]
    summary = sum(map(len, heads)) + 4 * len(heads)
    heads[0] = b"\x2a" + _varint(summary) + heads[0]
    pieces: list[Any] = [b"\x09", 0.0, b"\x10", b"", *(piece for head in heads for piece in (head, 0.0))]
    layout = f"<1sd1s{step_bytes}s" + "".join(f"{len(head)}sf" for head in heads)
    return struct.Struct(layout).pack, pieces


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
