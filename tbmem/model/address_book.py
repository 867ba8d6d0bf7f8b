"""AddressBook: addresses of a training run's named storages over time, to be joined with allocation events.

Each row says that at this time the storage at this address of this device was this parameter (gradient, optimizer
state, buffer, tensor saved for backward). An allocation gets the category of the rows that fall into its lifetime.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tbmem.errors import FileFormatError
from tbmem.model.category import Category
from tbmem.model.columns import check_header, read_archive, stored_column
from tbmem.model.json_values import MOST, read_json
from tbmem.model.stacks import Numbering

SCHEMA_VERSION = 1
KIND = "address_book"
_COLUMNS: Mapping[str, type[np.generic]] = {
    "time_ns": np.int64,
    "device": np.int16,
    "address": np.uint64,
    "bytes": np.int64,
    "category": np.int8,
    "name": np.int32,
}


class StorageNote(NamedTuple):
    """One storage at one moment."""

    time_ns: int  # Unix time in nanoseconds, the clock of torch.profiler's traces
    device: str
    address: int  # first byte of the storage, never 0
    bytes: int
    category: Category
    name: str
    """Name in the model (``'blocks.0.mlp.weight'``, ``'blocks.0.mlp.weight.exp_avg'``), or of the module that
    saved the tensor; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressBook:
    """Columns of storage notes in order of time; ``device`` and ``name`` index ``devices`` and ``names``."""

    time_ns: NDArray[np.int64]
    device: NDArray[np.int16]
    address: NDArray[np.uint64]
    bytes: NDArray[np.int64]
    category: NDArray[np.int8]
    name: NDArray[np.int32]
    devices: tuple[str, ...]
    names: tuple[str, ...]
    about: Mapping[str, Any]  # run, rank and window: plain JSON values

    @classmethod
    def from_notes(cls, notes: Iterable[StorageNote], about: Mapping[str, Any] | None = None) -> AddressBook:
        """Collect notes, in order of time, into columns; ``about`` is stored with them."""
        devices, names = Numbering[str](), Numbering[str]()
        rows = [(ns, devices[device], *values, names[name]) for ns, device, *values, name in notes]
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
        arrays = {key: np.array(values, _COLUMNS[key]) for key, values in zip(_COLUMNS, columns, strict=True)}
        return cls(**arrays, devices=tuple(devices), names=tuple(names), about=dict(about or {}))

    def __len__(self) -> int:
        return len(self.address)

    def notes(self) -> list[StorageNote]:
        """The rows as records."""
        rows = zip(*(getattr(self, key).tolist() for key in _COLUMNS), strict=True)
        return [
            StorageNote(ns, self.devices[device], address, size, Category(category), self.names[name])
            for ns, device, address, size, category, name in rows
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the book as ``.npz``: arrays and a JSON header, no pickles."""
        tables = {"devices": self.devices, "names": self.names, "about": dict(self.about)}
        header = {"schema": SCHEMA_VERSION, "kind": KIND, **tables}
        columns = {key: getattr(self, key) for key in _COLUMNS}
        with open(path, "wb") as file:
            np.savez_compressed(file, header=np.array(json.dumps(header)), **columns)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AddressBook:
        """Read a file that ``save`` wrote.

        Raises:
            FileFormatError: The file is damaged, is something else, or has a newer schema.
        """
        return read_archive(path, _parse, "an address book")


class _Header(msgspec.Struct):
    """The JSON beside the arrays."""

    devices: tuple[str, ...]
    names: tuple[str, ...]
    about: dict[str, Any]


def _parse(stored: Any) -> AddressBook:
    data = read_json(str(stored["header"]))
    check_header(data, KIND, SCHEMA_VERSION)
    header = msgspec.convert(data, _Header)
    columns = {key: stored_column(stored, key, dtype) for key, dtype in _COLUMNS.items()}
    if len({len(column) for column in columns.values()}) != 1:
        raise FileFormatError("its columns have different lengths")
    limits = {
        **{"device": len(header.devices) - 1, "name": len(header.names) - 1, "category": max(Category)},
        **{"bytes": MOST, "time_ns": 1 << 62},
    }
    for key, most in limits.items():
        if len(columns[key]) and not 0 <= int(columns[key].min()) <= int(columns[key].max()) <= most:
            raise FileFormatError(f"{key} of a row is out of range")
    return AddressBook(**columns, devices=header.devices, names=header.names, about=header.about)
