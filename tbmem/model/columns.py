"""Base class of tables of numpy columns, and reading of the ``.npz`` archives in which they are stored."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tbmem.errors import FileFormatError
from tbmem.model.unpacked_size import UnpackedSize
from tbmem.regular_files import open_regular

Bools = NDArray[np.bool_]
I8 = NDArray[np.int8]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]

_Table = TypeVar("_Table", bound="Columns")


def whole_numbers(values: F64) -> list[int | None]:
    """Values for JSON, ``None`` in the place of NaN."""
    return [None if value != value else int(value) for value in values.tolist()]


def column(dtype: type[np.generic], fill: int = -1) -> Any:
    """Declare a column; ``fill`` stands for 'unknown'."""
    return field(metadata={"dtype": dtype, "fill": fill})


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns of one length; a subclass declares them with ``column``."""

    @classmethod
    def of(cls: type[_Table], length: int = 0, **given: ArrayLike) -> _Table:
        """A table of ``length`` rows with the columns given; the others hold their fill value."""
        declared = cls.declared()
        if unknown := given.keys() - declared.keys():
            raise TypeError(f"{cls.__name__} has no column {', '.join(sorted(unknown))}")
        return cls(**{name: _filled(length, dtype, given.get(name, fill)) for name, (dtype, fill) in declared.items()})

    @classmethod
    def declared(cls) -> dict[str, tuple[type[np.generic], int]]:
        """Name, type and fill value of each column."""
        return {field.name: (field.metadata["dtype"], field.metadata["fill"]) for field in fields(cls)}

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Each column by its name."""
        return {name: getattr(self, name) for name in self.declared()}

    def take(self: _Table, index: NDArray[Any] | slice) -> _Table:
        """The rows that a mask, numbers or a slice select."""
        return type(self)(**{name: values[index] for name, values in self.columns().items()})

    def replace(self: _Table, **given: ArrayLike) -> _Table:
        """A table with some columns replaced, which shares the others: columns are not written to."""
        declared = self.declared()
        changed = {name: _filled(len(self), declared[name][0], values) for name, values in given.items()}
        return type(self)(**{**self.columns(), **changed})

    @classmethod
    def join(cls: type[_Table], parts: list[_Table]) -> _Table:
        """Concatenate tables."""
        parts = parts or [cls.of()]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.declared()})

    def check(self, tables: Mapping[str, int]) -> None:
        """Raise FileFormatError if lengths differ or an index is outside of its table, whose length is given."""
        if len({len(values) for values in self.columns().values()}) > 1:
            raise FileFormatError("its columns have different lengths")
        for name, size in tables.items():
            values = getattr(self, name)
            if len(values) and not -1 <= int(values.min()) <= int(values.max()) < size:
                raise FileFormatError(f"a row's {name} points outside of its table")


def _filled(length: int, dtype: type[np.generic], values: ArrayLike) -> NDArray[Any]:
    filled = np.empty(length, dtype)
    filled[:] = values
    return filled


Parsed = TypeVar("Parsed")


def read_archive(path: str | os.PathLike[str], parse: Callable[[Any], Parsed], what: str) -> Parsed:
    """Read an ``.npz`` file of tbmem without unpickling anything; ``what`` names it in messages: ``'an address book'``.

    Raises:
        FileFormatError: The file is damaged, is something else, or has a newer schema.
    """
    with open_regular(path) as file:
        packed = os.fstat(file.fileno()).st_size
        size = UnpackedSize(path, packed)
        size.add(packed)
        data = file.read()
    try:
        check_members(data, size)
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return parse(stored)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    except Exception as error:  # numpy and zipfile raise many kinds on damaged files
        why = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path}: not {what} of tbmem, or a damaged one ({why})") from error


def check_members(archive: bytes, size: UnpackedSize) -> None:
    """Raise FileFormatError if arrays unpack to more than the limit, or declare more values than they have."""
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        names = [member.filename for member in members.infolist()]
        if len(set(names)) < len(names):
            raise FileFormatError("holds two arrays of one name")
        # reading a member ends at the size that it declares
        for member in members.infolist():
            size.add(member.file_size)
        for member in members.infolist():
            with members.open(member) as file:
                _check_array(file, member.file_size)


def _check_array(file: IO[bytes], size: int) -> None:
    """Raise FileFormatError if an array's header declares more bytes than follow; numpy would make room for them."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if not all(isinstance(length, int) and length >= 0 for length in shape) or math.prod(shape) * dtype.itemsize > size:
        raise FileFormatError(f"declares an array of the shape {str(shape)[:60]}, which its {size} bytes do not have")


def stored_column(stored: Any, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """One column of an archive; FileFormatError if it is none of whole numbers, or one does not fit the type."""
    values: NDArray[Any] = stored[name]
    if values.ndim != 1 or values.dtype.kind not in "biu":
        raise FileFormatError(f"{name} is no column of whole numbers")
    column = values.astype(dtype)
    if not np.array_equal(column, values):
        raise FileFormatError(f"a value of {name} is out of range")
    return column


def check_header(header: Any, kind: str, newest: int) -> None:
    """Raise FileFormatError if the header has another ``kind``, or a ``schema`` after ``newest``."""
    found, schema = (header.get("kind"), header.get("schema")) if isinstance(header, dict) else (None, None)
    if not isinstance(schema, int):
        raise FileFormatError("its header says no schema")
    if found != kind or schema > newest:
        raise FileFormatError(f"holds {found} of schema {schema}, this tbmem reads {kind} up to {newest}")
