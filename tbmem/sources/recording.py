"""Reads any recording, told apart by its content, with the address book beside it."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tbmem.errors import FileFormatError
from tbmem.model.address_book import AddressBook
from tbmem.model.files import ADDRESS_BOOK_SUFFIX, SNAPSHOT_SUFFIX, address_book_name
from tbmem.model.timeline import AllocationTimeline, load_timeline
from tbmem.model.timeline_tables import OperatorCalls
from tbmem.sources.events.compressed_file import open_recording
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.sources.trace.reader import read_trace, read_trace_with_calls

_ZIP = b"PK\x03\x04"
_PICKLE = re.compile(rb"\x80|[(}\]]|c[\w.]+\n\w+\n")
"""Of any protocol: 0 and 1, which torch never writes, begin with what they hold."""
_JSON = (b"{", b"[", b"\xef")
_LOOKED_AT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording as read from a file."""

    path: Path
    timeline: AllocationTimeline
    book: AddressBook | None
    """The address book of the same window, if it lies beside the file."""
    calls: OperatorCalls | None = None
    """Of a trace, if they were asked for."""


def read_recording(path: str | os.PathLike[str], calls: bool = False) -> Recording:
    """Read a memory snapshot, a trace of torch.profiler or a ``*.tbmem.npz``, told apart by what is in them.

    Args:
        path: The file.
        calls: Whether to keep the operators' calls of a trace as well.

    Raises:
        FileFormatError: The file is damaged, cut off, empty, or something else.
        OSError: The file cannot be read.
    """
    place = Path(path)
    timeline, found = _read(place, calls)
    return Recording(path=place, timeline=timeline, book=_book_beside(place), calls=found)


def _read(place: Path, calls: bool) -> tuple[AllocationTimeline, OperatorCalls | None]:
    with open_recording(place) as file:
        begin = file.read(_LOOKED_AT)
    if begin.startswith(_ZIP):
        return _from_zip(place), None
    if _PICKLE.match(begin):
        return read_snapshot(place), None
    if begin.lstrip().startswith(_JSON):
        return read_trace_with_calls(place) if calls else (read_trace(place), None)
    raise FileFormatError(
        f"{place}: neither a memory snapshot (pickle), a trace of torch.profiler (JSON), nor a timeline of tbmem (npz)"
    )


def _from_zip(place: Path) -> AllocationTimeline:
    """A timeline of tbmem; torch.save writes zip files as well."""
    try:
        with zipfile.ZipFile(place) as file:
            names = file.namelist()
    except zipfile.BadZipFile as error:
        raise FileFormatError(f"{place}: a zip file that is damaged or cut off: copy or write it again") from error
    if "header.npy" not in names:
        raise FileFormatError(f"{place}: a zip file of something else (torch.save?), not a recording of memory")
    return load_timeline(place)


def _book_beside(place: Path) -> AddressBook | None:
    """The address book of the same stem, or that of the window in which a snapshot was taken; ``None`` without one."""
    beside = place.with_name(address_book_name(place.name))
    if beside.name != place.name and beside.is_file():
        return AddressBook.load(beside)
    if place.name.endswith(SNAPSHOT_SUFFIX):
        return _book_of_window(place)
    return None


def _book_of_window(snapshot: Path) -> AddressBook | None:
    """A window's book is named after its trace, and has the window's number in its header."""
    worker, _, label = snapshot.name.removesuffix(SNAPSHOT_SUFFIX).rpartition(".")
    for path in sorted(snapshot.parent.glob(f"{glob.escape(worker)}.*{ADDRESS_BOOK_SUFFIX}")):
        book = AddressBook.load(path)
        if str(book.about.get("window")) == label:
            return book
    return None
