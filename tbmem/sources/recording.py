"""Reads any recording, recognized by its content, with its address book."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tbmem.errors import FileFormatError, TbmemError, described
from tbmem.model.address_book import AddressBook
from tbmem.model.files import ADDRESS_BOOK_SUFFIX, SNAPSHOT_SUFFIX, address_book_name
from tbmem.model.timeline import AllocationTimeline, load_timeline
from tbmem.model.timeline_tables import OperatorCalls
from tbmem.regular_files import open_regular
from tbmem.sources.events.compressed_file import open_recording
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.sources.trace.reader import read_trace, read_trace_with_calls

_ZIP = b"PK\x03\x04"
_PICKLE = re.compile(rb"\x80|[(}\]]|c[\w.]+\n\w+\n")
"""Of any protocol; 0 and 1, which torch never writes, begin with their content."""
_JSON = (b"{", b"[", b"\xef")
_HEAD_BYTES = 64


class Recording(NamedTuple):
    """One recording from a file."""

    timeline: AllocationTimeline
    book: AddressBook | None  # the address book of the same window, if it is in the same folder
    calls: OperatorCalls | None  # calls of operators of a trace, if requested


def read_recording(path: str | os.PathLike[str], calls: bool = False) -> Recording:
    """Read a snapshot, a trace (with its operators' calls on request) or a ``*.tbmem.npz``, recognized by content.

    Raises:
        FileFormatError: The file is damaged, cut off, empty, or something else.
    """
    try:
        timeline, operator_calls = _read(Path(path), calls)
        timeline.check()
        timeline = timeline.encodable()
    except (TbmemError, OSError) as error:
        if isinstance(error, FileFormatError) and not str(error).startswith(f"{path}: "):
            raise FileFormatError(f"{path}: {error}") from error
        raise
    except Exception as error:
        # a damaged file may raise anything, wherever an odd value is met first
        raise FileFormatError(f"{path}: damaged, or of a kind that is not known ({described(error)})") from error
    try:
        book = _address_book(Path(path))
    except FileFormatError as error:
        note = f"The address book cannot be read, so that categories are inferred: {error}."
        timeline, book = replace(timeline, notes=(*timeline.notes, note)), None
    return Recording(timeline, book, operator_calls)


def _read(path: Path, calls: bool) -> tuple[AllocationTimeline, OperatorCalls | None]:
    with open_recording(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(_ZIP):
        return _from_zip(path), None
    if _PICKLE.match(head):
        return read_snapshot(path), None
    if head.lstrip().startswith(_JSON):
        return read_trace_with_calls(path) if calls else (read_trace(path), None)
    raise FileFormatError(
        f"{path}: neither a memory snapshot (pickle), a trace of torch.profiler (JSON), nor a timeline of tbmem (npz);"
        " torch.cuda.memory._dump_snapshot(file), a profiler with profile_memory=True, or tbmem write such files"
    )


def _from_zip(path: Path) -> AllocationTimeline:
    """Read a timeline of tbmem; torch.save writes zip files as well."""
    try:
        with open_regular(path) as packed, zipfile.ZipFile(packed) as file:
            names = file.namelist()
    except FileFormatError:
        raise
    except Exception as error:  # zipfile raises many kinds on damaged files
        raise FileFormatError(f"{path}: a zip file that is damaged or cut off: copy or write it again") from error
    if "header.npy" not in names:
        raise FileFormatError(f"{path}: a zip file of something else (torch.save?), not a recording of memory")
    return load_timeline(path)


def books_beside(path: Path) -> list[Path]:
    """The address book of the same stem, or those of the windows in which a snapshot may have been taken."""
    beside = path.with_name(address_book_name(path.name))
    if beside.name != path.name and beside.is_file():
        return [beside]
    if not path.name.endswith(SNAPSHOT_SUFFIX):
        return []
    # the book of a window is named after its trace
    worker = path.name.removesuffix(SNAPSHOT_SUFFIX).rpartition(".")[0]
    return sorted(path.parent.glob(f"{glob.escape(worker)}.*{ADDRESS_BOOK_SUFFIX}"))


def _address_book(path: Path) -> AddressBook | None:
    """The address book of the same stem, or of the window in which a snapshot was taken."""
    found = books_beside(path)
    if found == [path.with_name(address_book_name(path.name))]:
        return AddressBook.load(found[0])
    # its header has the window's number
    label = path.name.removesuffix(SNAPSHOT_SUFFIX).rpartition(".")[2]
    return next((book for book in map(AddressBook.load, found) if str(book.about.get("window")) == label), None)
