"""Small files that would take much memory or time: each by its name, and what the refusal says."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

_PRIME = (1 << 61) - 1
"""Whole numbers that are equal modulo this have equal hashes."""
_EVENT = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01\x8c\x06streamK\x00u"


def _number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(data)]) + data


def _colliding(count: int) -> bytes:
    """A pickle of a dict whose keys have equal hashes, in frames such as pickle.dump's."""
    pairs = b"".join(_number(1 + _PRIME * number) + b"N" for number in range(1, count + 1))
    return b"\x80\x04}(" + pairs + b"u."


def _tower(levels: int) -> bytes:
    """A pickle of a dict with one key: a tuple of tuples, of which each holds the one before twice."""
    return b"\x80\x04})" + b"\x94" + b"".join(b"h" + bytes([level]) + b"\x86\x94" for level in range(levels)) + b"Ns."


def _one_event(times: int) -> tuple[bytes, bytes, bytes]:
    """A snapshot with one event that is in its log again and again, in two bytes each: begin, middle, end."""
    begin = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](" + _EVENT + b"\x94"
    return begin, b"h\x00" * times, b"eeu."


def _frames_in_frames(levels: int) -> bytes:
    """A snapshot whose one event has a frame named by a list of lists, of which each holds the one before twice."""
    name = b"]\x94" + b"".join(b"0](h" + bytes([level]) + b"h" + bytes([level]) + b"e\x94" for level in range(levels))
    frame = b"}(\x8c\x08filename\x8c\x01f\x8c\x04lineK\x01\x8c\x04name" + name + b"u"
    event = _EVENT[:-1] + b"\x8c\x06frames](" + frame + b"eu"
    return b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](" + event + b"eeu."


def _array(shape: str) -> bytes:
    """An archive with a header that declares a large array, which is not there."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return _archive(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def _archive(member: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", member)
    return content.getvalue()


def _zeros(count: int) -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros(count, np.uint8))
    return _archive(content.getvalue())


def _members(count: int, begin: bytes, middle: bytes, end: bytes) -> bytes:
    """A gzip file of which each part is packed by itself."""
    return gzip.compress(begin) + gzip.compress(middle, 9) * count + gzip.compress(end)


_SAMPLE = '{{"type":"samples","step":1,"time":1.0,"first_step":1,"count":1,"device":"cpu","rank":{rank}}}'

HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "index of the memo": ("a.pickle", lambda: b"\x80\x04]r\xff\xff\xff\x07.", "index 134217727 in its memo"),
    "index of the memo, in digits": ("a.pickle", lambda: b"(lp134217727\n.", "index 134217727 in its memo"),
    "index of the memo, after a megabyte": (
        *("a.pickle", lambda: b"\x80\x04]" + b"N0" * 500_000 + b"r\xff\xff\xff\x07."),
        "take more than",
    ),
    "frame": ("a.pickle", lambda: b"\x80\x04\x95" + b"\xff" * 7 + b"\x00].", "frame or string"),
    "counted bytes": ("a.pickle", lambda: b"\x80\x04\x8e" + b"\xff" * 5 + b"\x00" * 3 + b".", ""),
    "colliding keys": ("a.pickle", lambda: _colliding(5_000), "number of 1. bytes"),
    "colliding keys, 390 KB": ("a.pickle", lambda: _colliding(30_000), "numbers of more than 72 bits"),
    "tuples in tuples": ("a.pickle", lambda: _tower(60), "a tuple of other things"),
    "one event, 87 KB of gzip": ("a.pickle.gz", lambda: _members(42, *_one_event(1_000_000)), "unpacks to more than"),
    "one event, a megabyte": ("a.pickle", lambda: b"".join(_one_event(500_000)), "again and again"),
    "empty lists": ("a.pickle", lambda: b"\x80\x04](" + b"]" * 8_000_000 + b"e.", "take more than"),
    "lists in a frame": ("a.pickle", lambda: _frames_in_frames(60), "other than short texts"),
    "no events": ("a.json.gz", lambda: _members(2000, b"{", b" " * 1_000_000, b"}"), 'no "traceEvents"'),
    "no events, plain": ("a.trace.json", lambda: b"{" + b" " * 20_000_000 + b"}", 'no "traceEvents"'),
    "one long event": (
        *("a.trace.json", lambda: b'{"traceEvents": [\n  {"name": "' + b"x" * 80_000_000),
        "cut off or damaged",
    ),
    "declared shape": ("a.tbmem.npz", lambda: _array("(1000000000000,)"), "declares an array"),
    "zeros": ("a.tbmem.npz", lambda: _zeros(100_000_000), "unpacks to more than"),
    "a line without end": ("monitor.jsonl", lambda: b'{"type":"samples"' * 2_000_000, "not a monitor log"),
    "ranks": (
        "monitor.jsonl",
        lambda: "\n".join(_SAMPLE.format(rank=rank) for rank in range(5_000)).encode() + b"\n",
        "more than 1024 devices",
    ),
}
"""Name, content, and a pattern of what the one line says, by what is costly about it."""


def write_hostile(name: str, folder: Path) -> Path:
    """Write one of them."""
    file, content, _ = HOSTILE[name]
    path = folder / file
    path.write_bytes(content())
    return path


def honest_snapshot(events: int) -> bytes:
    """A snapshot of some size, as pickle.dump writes it."""
    stack = [[{"filename": "train.py", "line": line, "name": "step"}] for line in range(100)]
    log = [
        {"action": "alloc", "addr": 512 * at, "size": 512, "stream": 0, "time_us": at, "frames": stack[at % 100]}
        for at in range(events)
    ]
    return pickle.dumps({"segments": [], "device_traces": [log]}, protocol=4)


def honest_trace(events: int) -> bytes:
    """A trace of some size, as torch writes it."""
    event = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5}
    event["args"] = {"Addr": 7, "Bytes": 64, "Device Type": 0, "Device Id": -1, "Total Allocated": 64}
    return json.dumps({"traceEvents": [event] * events}, indent=2).encode()
