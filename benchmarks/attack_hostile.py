"""Files that are made to do harm: pickles that call, bombs, colliding keys, nesting, names; for ``attack.py``."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import socket
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARKER = "EXECUTED"
"""File that a hostile pickle makes, if it is executed."""
NAME = "</script><img src=x onerror=alert(1)>\"'&<svg/onload=alert(2)>"
"""A name that would run in a page, if it were not escaped."""
_PRIME = (1 << 61) - 1  # whole numbers that differ by a multiple of it have one hash


class _Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


def hostile_pickles(folder: Path) -> list[bytes]:
    """Pickles that call something, or cost far more than their size."""
    command = f"touch {folder / MARKER}"
    calls = [_Call(os.system, command), _Call(eval, f"open({str(folder / MARKER)!r}, 'w')"), _Call(exec, "0")]
    calls += [_Call(getattr, [], "append"), _Call(open, str(folder / MARKER), "w"), _Call(bytearray, 1 << 33)]
    nested = [
        pickle.dumps({"segments": [call], "device_traces": [[call]]}, protocol)
        for call in calls
        for protocol in (0, 2, 4)
    ]
    written_out = [
        f"cos\nsystem\n(S'{command}'\ntR.".encode(),
        f"(S'{command}'\nios\nsystem\n.".encode(),
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",
        b"\x80\x02cbuiltins\neval\nq\x00X\x01\x00\x00\x000\x85R.",
        b"\x80\x02\x82\x01.",  # extension registry
        b"\x80\x02P0\n.",
        b"\x80\x02K\x01Q.",  # persistent
        b"\x80\x02]r\xff\xff\xff\x0f.",  # a memo of 2.1 GB
        b"\x80\x04]r\xff\xff\xff\x7f.",
        b"\x80\x04}\x94(" + b"K\x01K\x02" * 10 + b"u" * 3 + b".",
        b"\x80\x04" + b"(" * 100_000 + b".",
        b"\x80\x04" + b"]" + b"\x94" * 50_000 + b".",
        b"\x80\x04\x8b\xff\xff\xff\x7f" + b"\xff" * 100 + b".",  # a number of 2 GB
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 33) + b"x.",  # a bytearray of 8 GB
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"].",
        b"\x80\xff].",
        b"\x80\x04I" + b"9" * 100_000 + b"\n.",
        b"\x80\x04" + b"]\x94" + b"h\x00a" * 1000 + b".",  # a list in itself
        b"\x80\x04}\x94\x8c\x08segments\x94h\x00s.",
        _doubling(),
    ]
    return nested + written_out


def _doubling() -> bytes:
    """Lists of lists, each ten times the one before: 10^40 leaves in 500 bytes."""
    data = b"\x80\x02]q\x00"
    for level in range(40):
        data += b"](" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"eq" + bytes([level + 1])
    return data + b"."


def bombs() -> list[tuple[str, bytes]]:
    """Small files that unpack to large ones, by the name that they have."""
    zeros = gzip.compress(bytes(90 << 20), 9)
    spaces = gzip.compress(b'{"traceEvents": [' + b" " * (200 << 20) + b"]}", 9)
    lists = gzip.compress(b"[" * (50 << 20), 9)
    events = b'{"ph":"X","ts":1,"name":"a"},' * 200_000
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", bytes(200 << 20))
    return [
        ("w.pickle.gz", zeros),
        ("w.pt.trace.json.gz", zeros),
        ("w.pt.trace.json.gz", spaces),
        ("w.pt.trace.json.gz", lists),
        ("w.pt.trace.json.gz", gzip.compress(b'{"traceEvents": [' + events * 5 + b"{}]}", 9)),
        ("w.pt.trace.json.gz", gzip.compress(b'{"traceEvents": [{"name": "' + b"\\" * (8 << 20), 9)),
        ("w.pt.trace.json.gz", gzip.compress(b'{"a": "' + b'\\"' * (4 << 20) + b'"', 9)),
        ("w.pt.trace.json.gz", gzip.compress(b'{"traceEvents": [' + b'"x",' * (2 << 20) + b"1]}", 9)),
        ("w.pickle.gz", gzip.compress(b"\x80\x04" + b"]" * (30 << 20) + b".", 9)),
        ("w.pickle.gz", gzip.compress(b"\x80\x04](" + b"K\x01" * (20 << 20) + b"e.", 9)),
        ("w.tbmem.npz", packed.getvalue()),
        ("plugins/tbmem/monitor.jsonl", b"{" * (20 << 20)),
        ("plugins/tbmem/monitor.jsonl", b"\n" * (4 << 20)),
        ("plugins/tbmem/monitor.jsonl", b'{"type":"header"}\n' * 200_000),
    ]


def colliding(count: int = 40_000) -> list[tuple[str, bytes]]:
    """Recordings whose addresses, ids or keys all have one hash."""
    numbers = [(number + 1) * _PRIME for number in range(count)]
    # written out: a dictionary of them takes seconds to make as well
    pairs = b"}(" + b"".join(b"\x8a\x0a" + number.to_bytes(10, "little") + b"N" for number in numbers) + b"u"
    few = [number % (1 << 63) for number in numbers]
    events = [{"action": "alloc", "addr": number, "size": 512, "stream": 0, "frames": []} for number in few]
    memory = [
        {
            "ph": "i",
            "name": "[memory]",
            "ts": number,
            "pid": 1,
            "tid": 1,
            "args": {"Addr": address, "Bytes": 512, "Device Type": 0, "Device Id": -1, "Total Allocated": 512},
        }
        for number, address in enumerate(few)
    ]
    return [
        ("w.pickle", b"\x80\x04" + pairs + b"."),
        ("w.pickle", b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]\x8c\x01x" + pairs + b"u."),
        ("w.pickle", pickle.dumps({"segments": [], "device_traces": [events]}, 4)),
        ("w.pt.trace.json", json.dumps({"traceEvents": memory}).encode()),
        (
            "w.pt.trace.json",
            json.dumps({"traceEvents": [{"ph": "s", "id": number, "ts": 1} for number in numbers]}).encode(),
        ),
    ]


def nested() -> list[tuple[str, bytes]]:
    """JSON, YAML and pickles nested deeper than a parser's stack, by the path in a log folder."""
    found: list[tuple[str, bytes]] = []
    for depth in (500, 990, 1500, 100_000):
        deep = b"[" * depth + b"]" * depth
        keys = b'{"a":' * depth + b"1" + b"}" * depth
        log = b"plugins/tbmem/monitor.jsonl".decode()
        for json_text in (deep, keys):
            found += [
                ("run/w.pt.trace.json", b'{"traceEvents": ' + json_text + b"}"),
                ("run/w.pt.trace.json", b'{"x": ' + json_text + b', "traceEvents": []}'),
                (
                    "run/w.pt.trace.json",
                    b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "args": ' + json_text + b"}]}",
                ),
                (f"run/{log}", b'{"type":"header","config":' + json_text + b"}\n"),
                (f"run/{log}", b'{"type":"finding","kind":"leak","evidence":' + json_text + b"}\n"),
                ("baseline.json", b'{"schema":1,"peaks":' + json_text + b"}"),
                ("config.yaml", b"run: " + json_text),
                ("rules.yaml", b"categories: " + json_text),
                ("model/config.json", json_text),
                ("run/w.estimate.json", json_text),
            ]
        found.append(("run/w.pickle", b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."))
        found.append(("config.yaml", b"".join(b" " * level + b"a:\n" for level in range(min(depth, 1500)))))
    found.append(("config.yaml", _doubled_aliases()))
    return found


def _doubled_aliases() -> bytes:
    """YAML in which each key has twice the content of the one before."""
    lines = ["a: &b0 [x, x]", *(f"a{n}: &b{n} [*b{n - 1}, *b{n - 1}]" for n in range(1, 40))]
    return "\n".join(lines).encode()


def named_files(sound: Callable[[str], bytes]) -> list[tuple[str, bytes]]:
    """Runs, files, devices, functions and messages with a name that would run in a page."""
    log = sound("log").decode().splitlines()
    header = {**json.loads(log[0]), "host": NAME, "run": NAME, "torch": NAME, "config": {"run": {"name": NAME}}}
    finding = {
        "type": "finding",
        "kind": "leak",
        "severity": "critical",
        "device": NAME,
        "first_step": 1,
        "last_step": 9,
    }
    finding |= {
        "message": NAME,
        "advice": NAME,
        "evidence": {"line": {"file": NAME, "line": 1, "function": NAME, "text": NAME}},
    }
    lines = [json.dumps(header), *log[1:-1], json.dumps(finding), log[-1]]
    named_log = "\n".join([*lines, ""]).replace('"device":"cpu"', '"device":' + json.dumps(NAME)).encode()
    name = NAME.replace("/", "_")
    trace = json.loads(sound("trace"))
    for event in trace["traceEvents"]:
        if isinstance(event.get("name"), str) and event["name"] != "[memory]":
            event["name"] = NAME if event.get("ph") == "X" else event["name"]
    snapshot = pickle.loads(sound("snapshot"))
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            block["frames"] = [{"filename": NAME, "line": 1, "name": NAME}]
    for events in snapshot["device_traces"]:
        for event in events:
            event["frames"] = [{"filename": f"{NAME}.py", "line": 1, "name": NAME}]
    return [
        ("run/plugins/tbmem/monitor.jsonl", named_log),
        (f"{name}/plugins/tbmem/monitor.jsonl", sound("log")),
        (f"run/{name}.pt.trace.json", json.dumps(trace).encode()),
        (f"run/{name}.pickle", pickle.dumps(snapshot, 4)),
        ("run/w.pickle", pickle.dumps(snapshot, 4)),
        ("run/w.pt.trace.json", json.dumps(trace).encode()),
        ("run/a\nb\x1b[31m.pickle", pickle.dumps(snapshot, 4)),
        ("run/\udcff.pickle", pickle.dumps(snapshot, 4)),
    ]


def _socket(path: Path) -> None:
    short = Path(tempfile.mkdtemp(), "s")  # its path is limited to 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short))
    os.replace(short, path)


SPECIAL: tuple[Callable[[Path], object], ...] = (
    os.mkfifo,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/full"),
    lambda path: path.symlink_to("/dev/random"),
    lambda path: path.symlink_to(path),
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to("/nowhere"),
    lambda path: path.symlink_to("/proc/self/mem"),
    lambda path: path.mkdir(),
    _socket,
    lambda path: path.write_bytes(b""),
)
