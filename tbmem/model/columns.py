"""Tables of numpy columns that are declared, filled, selected and checked alike."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tbmem.errors import FileFormatError

Bools = NDArray[np.bool_]
I8 = NDArray[np.int8]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]

_Table = TypeVar("_Table", bound="Columns")


def column(dtype: type[np.generic], fill: int = -1) -> Any:
    """A field of a table.

    Args:
        dtype: What the column holds.
        fill: What a row holds of which nothing is known.
    """
    return field(metadata={"dtype": dtype, "fill": fill})


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns of one length; a subclass declares them with ``column``."""

    @classmethod
    def of(cls: type[_Table], length: int = 0, **given: ArrayLike) -> _Table:
        """A table of ``length`` rows, with the columns that are given; the others hold what stands for 'unknown'."""
        declared = cls.declared()
        if unknown := given.keys() - declared.keys():
            raise TypeError(f"{cls.__name__} has no column {', '.join(sorted(unknown))}")
        columns = {name: _filled(length, given.get(name, fill), dtype) for name, (dtype, fill) in declared.items()}
        return cls(**columns)

    @classmethod
    def declared(cls) -> dict[str, tuple[type[np.generic], int]]:
        """Name, type and fill value of each column."""
        return {one.name: (one.metadata["dtype"], one.metadata["fill"]) for one in fields(cls)}

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Each column by its name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def take(self: _Table, which: NDArray[Any] | slice) -> _Table:
        """The rows of a mask, of numbers or of a slice."""
        return type(self)(**{name: values[which] for name, values in self.columns().items()})

    def replace(self: _Table, **given: ArrayLike) -> _Table:
        """The same rows with some columns put in place of others."""
        kept = {name: values for name, values in self.columns().items() if name not in given}
        return self.of(len(self), **kept, **given)

    @classmethod
    def join(cls: type[_Table], parts: list[_Table]) -> _Table:
        """The rows of several tables, one after the other."""
        if not parts:
            return cls.of(0)
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.declared()})

    def check(self, tables: Mapping[str, int]) -> None:
        """Refuse columns that do not belong together.

        Args:
            tables: Length of the table that a column points into, by the column's name; -1 points to nothing.

        Raises:
            FileFormatError: Lengths differ, or a row points outside of its table.
        """
        if len({len(values) for values in self.columns().values()}) > 1:
            raise FileFormatError("its columns have different lengths")
        for name, size in tables.items():
            values = getattr(self, name)
            if len(values) and not -1 <= int(values.min()) <= int(values.max()) < size:
                raise FileFormatError(f"a row's {name} points outside of its table")


def _filled(length: int, given: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """A column of its own that holds what is given, for each row or the same for all."""
    filled = np.empty(length, dtype)
    filled[:] = given
    return filled


Parsed = TypeVar("Parsed")


def read_archive(path: str | os.PathLike[str], parse: Callable[[Any], Parsed], what: str) -> Parsed:
    """Read a file of ours; nothing in it is run.

    Args:
        path: The file.
        parse: Makes the record of the open archive.
        what: What the file should be, for the message: ``'an address book'``.

    Raises:
        FileFormatError: The file is damaged, is something else, or has a newer schema.
        OSError: The file cannot be read.
    """
    place = Path(path)
    data = place.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return parse(stored)
    except FileFormatError as error:
        raise FileFormatError(f"{place}: {error}") from error
    except Exception as error:
        # numpy and zipfile raise a dozen kinds of errors on damaged files
        why = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{place}: not {what} of tbmem, or a damaged one ({why})") from error


def check_header(header: Mapping[str, Any], kind: str, newest: int) -> None:
    """Refuse what is something else, or from a later tbmem.

    Args:
        header: The archive's, with ``kind`` and ``schema``.
        kind: What it must be.
        newest: The latest schema that is known.

    Raises:
        FileFormatError: It is another kind, or a later schema.
    """
    found, schema = header["kind"], int(header["schema"])
    if found != kind or schema > newest:
        raise FileFormatError(f"holds {found} of schema {schema}, this tbmem reads {kind} up to {newest}")
