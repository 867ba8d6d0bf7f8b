"""Reads the file of an offline run of wandb: a log in LevelDB's format of wandb's own protocol buffers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK, _FILE_HEADER, _CHUNK_HEADER = 32 * 1024, 7, 7
_LAST_CHUNKS = (1, 4)  # a whole record, and the last part of one


def records(path: Path) -> Iterator[Any]:
    """The records of a run, in order."""
    from wandb.proto import wandb_internal_pb2

    data, position, whole = path.read_bytes(), _FILE_HEADER, b""
    while position + _CHUNK_HEADER <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _CHUNK_HEADER:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        whole += data[position + _CHUNK_HEADER : position + _CHUNK_HEADER + length]
        position += _CHUNK_HEADER + length
        if kind in _LAST_CHUNKS:
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def is_complete(path: Path) -> bool:
    """Whether a run's last record is in the file: wandb's service writes it a moment after ``finish()``."""
    return any(record.WhichOneof("record_type") == "exit" for record in records(path))


def history(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's history."""
    rows = [record.history for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{_key(item): json.loads(item.value_json) for item in row.item} for row in rows]


def summary(path: Path) -> dict[str, Any]:
    """The last values of a run's summary."""
    updates = [record.summary for record in records(path) if record.WhichOneof("record_type") == "summary"]
    return {_key(item): json.loads(item.value_json) for update in updates for item in update.update}


def alerts(path: Path) -> list[tuple[str, str, str]]:
    """Title, text and level of each alert."""
    found = [record.alert for record in records(path) if record.WhichOneof("record_type") == "alert"]
    return [(alert.title, alert.text, alert.level) for alert in found]


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)
