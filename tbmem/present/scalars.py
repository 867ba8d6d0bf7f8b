"""Encodes samples as TensorBoard scalars, the records of an event file that every dashboard reads.

All in GiB unless the name says otherwise; with several devices in one process the tags of the second line apply.

    memory/allocated            held by tensors (CPU: handed out by malloc)
    memory/<device>/allocated   the same for one of several devices
    memory/reserved             held by the allocator
    memory/peak_allocated       largest since the last point
    memory/peak_reserved        largest since the last point
    memory/device_used          used on the device by all processes
    memory/host_rss, ...        the host's counters but the available memory, by their names in ``MemorySample``
    memory/utilization_percent  peak in per cent of the device
    memory/alloc_retries        times that the allocator had to empty its cache, a count
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import google_crc32c
from tensorboard.compat.proto.event_pb2 import Event, SourceMetadata
from tensorboard.compat.proto.summary_pb2 import Summary

from tbmem.model.finding import Finding
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.units import GIB

_FIELDS = MemorySample._fields
GIB_TAGS = (
    *("allocated", "reserved", "peak_allocated", "peak_reserved", "device_used"),
    *(name for name in _FIELDS[_FIELDS.index("host_rss") :] if name != "host_available"),
)
_FILE_VERSION = "brain.Event:2"
_WRITER = "tbmem.present.scalars"
_NUMBER = count()


class Scalar(NamedTuple):
    """One counter of a sample that is worth a curve."""

    name: str
    value: float
    unit: str
    """``'bytes'``, ``'percent'``, or empty for a count."""


def scalars_of(sample: MemorySample) -> Iterator[Scalar]:
    """A scalar for each counter that the device has."""
    for name in GIB_TAGS:
        value = getattr(sample, name)
        if value is not None:
            yield Scalar(name, value, "bytes")
    if sample.peak is not None and sample.device_total:
        yield Scalar("utilization_percent", 100 * sample.peak / sample.device_total, "percent")
    if sample.alloc_retries is not None:
        yield Scalar("alloc_retries", float(sample.alloc_retries), "")


def scalar_values(sample: MemorySample, *, several: bool = False) -> Iterator[tuple[str, float]]:
    """The points of one sample.

    Yields:
        Tag and value for each counter that the device has.
    """
    prefix = _prefix(sample.device, several)
    for name, value, unit in scalars_of(sample):
        yield f"{prefix}/{name}", value / GIB if unit == "bytes" else value


def summary_values(verdicts: Sequence[Finding], peaks: Sequence[Peak]) -> dict[str, str | float]:
    """Verdict and peak (GiB) of each device at the end of a run, by tags such as ``memory/verdict``."""
    values: dict[str, str | float] = {}
    several = len({verdict.device for verdict in verdicts} | {peak.device for peak in peaks}) > 1
    for verdict in verdicts:
        prefix = _prefix(verdict.device, several)
        values |= {f"{prefix}/verdict": verdict.kind.value, f"{prefix}/verdict_message": verdict.message}
    for peak in peaks:
        prefix = _prefix(peak.device, several)
        values |= {f"{prefix}/peak": peak.bytes / GIB, f"{prefix}/peak_step": peak.step}
    return values


def _prefix(device: str, several: bool) -> str:
    return f"memory/{device}" if several else "memory"


class ScalarEncoder:
    """Encodes points as the records of one event file; all of a step's points are one record.

    TensorBoard's own writers bring a thread and a queue that can block; whoever has these bytes appends them.

    Args:
        host: Host name in the file's name; by default this machine's.
    """

    def __init__(self, host: str | None = None) -> None:
        self._unique = f"{host or socket.gethostname()}.{os.getpid()}.{next(_NUMBER)}"

    def file_name(self, moment: float) -> str:
        """Name of an event file that begins at a moment (Unix time in seconds), by which TensorBoard knows it."""
        return f"events.out.tfevents.{int(moment):010d}.{self._unique}"

    def first_record(self, moment: float) -> bytes:
        """What the file begins with."""
        source = SourceMetadata(writer=_WRITER)
        return _framed(Event(wall_time=moment, file_version=_FILE_VERSION, source_metadata=source))

    def records(self, samples: Sequence[MemorySample], *, several: bool = False) -> list[bytes]:
        """The points of samples, one record for each that has some."""
        records = []
        for sample in samples:
            points = scalar_values(sample, several=several)
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in points]
            if values:
                records.append(_framed(Event(wall_time=sample.time, step=sample.step, summary=Summary(value=values))))
        return records


def _framed(event: Event) -> bytes:
    """An event as the file has it: length, its checksum, the event, its checksum."""
    content: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    return b"".join((length, _checksum(length), content, _checksum(content)))


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as TensorFlow's ``lib/hash/crc32c.h`` does, so that a checksum of checksums is not trivial."""
    crc: int = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
