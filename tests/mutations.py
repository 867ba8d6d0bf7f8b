"""Damages files at random, from a seed: cut off, bytes flipped, values replaced by odd ones."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

ODD: list[Any] = [
    *("x", "", "\ud800", "\0", "9" * 5000, None, True, [], {}, [1], {"a": 1}, [[[]]]),
    *(-1, 0, 0.5, 1e308, -1e308, 2**53 + 1, 2**63, -(2**63), 2**64, 10**400),
    *(float("nan"), float("inf"), 253402300800.0, "nan", "cuda:99999999999999999999"),
]


def flipped(chance: random.Random, data: bytes) -> bytes:
    """Cut off, shortened or with other bytes."""
    at, kind = chance.randrange(len(data)), chance.random()
    if kind < 0.3:
        return data[:at]
    if kind < 0.5:
        return data[:at] + data[at + chance.randrange(1, 64) :]
    changed = bytearray(data)
    for _ in range(chance.choice([1, 2, 16])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def mutated(chance: random.Random, value: Any) -> Any:
    """A plain value in which some parts are replaced, removed or put twice."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice([1, 1, 2, 5])):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(chance.choice(ODD))
        holder, key = chance.choice(places)
        kind = chance.random()
        if kind < 0.15:
            del holder[key]
        elif kind < 0.25 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def mutated_lines(chance: random.Random, data: bytes) -> bytes:
    """A log with some damaged records."""
    if chance.random() < 0.2:
        return flipped(chance, data)
    lines = data.splitlines()
    for _ in range(chance.choice([1, 2, 6])):
        at = chance.choice([0, len(lines) - 1, chance.randrange(len(lines))])
        lines[at] = mutated_json(chance, lines[at]).replace(b"\n", b"")
    return b"\n".join([*lines, b""])


def mutated_json(chance: random.Random, data: bytes) -> bytes:
    """JSON that is damaged, nested too deep, has a key twice, or an odd value."""
    kind = chance.random()
    if kind < 0.1:
        return flipped(chance, data) if data else data
    if kind < 0.2:
        depth = chance.choice([500, 1500, 100_000])
        return data[: chance.randrange(len(data) + 1)] + chance.choice([b"[", b'{"a":']) * depth
    try:
        value = json.loads(data)
    except ValueError:  # it was damaged before
        return data
    if kind < 0.3 and isinstance(value, dict) and value:
        twice = json.dumps({chance.choice(list(value)): chance.choice(ODD)})
        return data.rstrip()[:-1] + b"," + twice[1:].encode()
    return json.dumps(mutated(chance, value), indent=chance.choice([None, 2])).encode()


def mutated_pickle(chance: random.Random, data: bytes) -> bytes:
    """A pickle that is damaged or has odd values."""
    if chance.random() < 0.5:
        return flipped(chance, data)
    return pickle.dumps(mutated(chance, pickle.loads(data)), protocol=4)


def mutated_archive(chance: random.Random, data: bytes) -> bytes:
    """An ``.npz`` that is damaged, or in which an array is missing, damaged, of another type, or has odd values."""
    if chance.random() < 0.4:
        return flipped(chance, data)
    with zipfile.ZipFile(io.BytesIO(data)) as stored:
        parts = {name: stored.read(name) for name in stored.namelist()}
    name = chance.choice(list(parts))
    kind = chance.random()
    if kind < 0.1:
        del parts[name]
    elif kind < 0.3:
        parts[name] = flipped(chance, parts[name])
    else:
        parts[name] = _mutated_array(chance, parts[name], is_header=name == "header.npy")
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as file:
        for each, content in parts.items():
            file.writestr(each, content)
    return changed.getvalue()


def _mutated_array(chance: random.Random, data: bytes, is_header: bool) -> bytes:
    array = np.load(io.BytesIO(data))
    if is_header:
        array = np.frombuffer(mutated_json(chance, array.tobytes()), np.uint8)
    elif array.size:
        array = array.astype(chance.choice([array.dtype, np.float64, np.complex64, np.uint64, "U5"]))
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        odd = [0, 1] if limits is None else [limits.min, limits.max, 0, max(limits.min, -2)]
        array.flat[chance.randrange(array.size)] = chance.choice(odd)
        array = array.reshape(-1, 1) if chance.random() < 0.1 else array
    changed = io.BytesIO()
    np.save(changed, array)
    return changed.getvalue()
