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
    memory/workers_rss          resident memory of its child processes
    memory/utilization_percent  peak in per cent of the device
    memory/alloc_retries        times that the allocator had to empty its cache, a count
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tbmem.model.sample import MemorySample
from tbmem.present.crc32c import masked_crc32c
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
    "workers_rss",
)
UTILIZATION_TAG = "utilization_percent"
COUNT_TAGS = ("alloc_retries",)
_FILE_VERSION = "brain.Event:2"
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

    TensorBoard's own writers bring a thread and a queue that can block; this one is called from tbmem's thread.

    Args:
        folder: The run folder.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SourceMetadata
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._event: Any = Event
        self._summary: Any = Summary
        unique = f"{os.getpid()}.{next(_NUMBER)}"
        self.path = Path(folder) / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{unique}"
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115  (open as long as the run)
        source = SourceMetadata(writer="tbmem.present.scalars")
        self._put(Event(wall_time=time.time(), file_version=_FILE_VERSION, source_metadata=source))

    def write(self, sample: MemorySample, *, several: bool = False) -> None:
        """Add the points of one sample.

        Raises:
            OSError: The file cannot be written.
        """
        values = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in scalar_values(sample, several=several)
        ]
        self._put(self._event(wall_time=sample.time, step=sample.step, summary=self._summary(value=values)))

    def _put(self, event: Any) -> None:
        """One record: length, its checksum, the event, its checksum."""
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        parts = (length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data)))
        self._file.write(b"".join(parts))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()
