"""Reads numpy archives with a JSON header; trouble is one clear line."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tbmem.errors import FileFormatError

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
