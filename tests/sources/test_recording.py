"""A file is what is in it, whatever it is called; its address book lies beside it."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from tbmem.errors import FileFormatError, UnsafeFileError
from tbmem.model.address_book import AddressBook, StorageNote
from tbmem.model.category import Category
from tbmem.model.timeline import save_timeline
from tbmem.sources.recording import read_recording
from tests.offline.snapshots import write_snapshot

MEMORY = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5}
MEMORY |= {"args": {"Addr": 7, "Bytes": 64, "Device Type": 0, "Device Id": -1, "Total Allocated": 64}}
TRACE = json.dumps({"traceEvents": [MEMORY]}, indent=2).encode()


def _book(path: Path, name: str, **about: object) -> None:
    AddressBook.from_notes([StorageNote(1, "cpu", 7, 64, Category.PARAMETER, name)], about).save(path)


def test_what_is_in_it_counts(tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(gzip.compress(TRACE))
    write_snapshot(tmp_path / "b.json", sizes=[1000])
    save_timeline(read_recording(tmp_path / "b.json").timeline, tmp_path / "c")

    found = [read_recording(tmp_path / name).timeline for name in ("a.pickle", "b.json", "c")]

    assert [timeline.source for timeline in found] == ["trace", "snapshot", "snapshot"]
    assert [timeline.peak(0).bytes for timeline in found] == [64, 1000, 1000]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"hello", "neither"), (b"PK\x03\x04rest", "zip"), (pickle.dumps([1]), "something else"), (b"", "empty")],
)
def test_anything_else_is_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(data)

    with pytest.raises(FileFormatError, match=message) as caught:
        read_recording(tmp_path / "x")

    assert str(caught.value).startswith(str(tmp_path / "x"))


def test_the_book_of_the_same_stem(tmp_path: Path) -> None:
    (tmp_path / "vm_rank0.123.pt.trace.json.gz").write_bytes(gzip.compress(TRACE))
    _book(tmp_path / "vm_rank0.123.addresses.npz", "this")
    _book(tmp_path / "vm_rank0.456.addresses.npz", "other")

    book = read_recording(tmp_path / "vm_rank0.123.pt.trace.json.gz").book

    assert book is not None
    assert book.names == ("this",)


def test_a_windows_snapshot_has_the_book_of_its_trace(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "vm_rank0.2.snapshot.pickle", sizes=[1000])
    for number in (1, 2):
        _book(tmp_path / f"vm_rank0.{number}00.addresses.npz", f"window {number}", window=number)
    _book(tmp_path / "vm_rank1.200.addresses.npz", "another rank", window=2)

    book = read_recording(tmp_path / "vm_rank0.2.snapshot.pickle").book

    assert book is not None
    assert book.names == ("window 2",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_any_protocol_are_told(tmp_path: Path, protocol: int) -> None:
    path = write_snapshot(tmp_path / "x.pickle", sizes=[1000])
    path.write_bytes(pickle.dumps(pickle.loads(path.read_bytes()), protocol))

    assert read_recording(path).timeline.source == "snapshot"


def test_a_hostile_pickle_of_letters_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.pickle").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")

    with pytest.raises(UnsafeFileError, match=r"os\.system.*nothing was executed"):
        read_recording(tmp_path / "x.pickle")


def test_an_unpacked_trace_has_its_book(tmp_path: Path) -> None:
    (tmp_path / "w.1.pt.trace.json").write_bytes(TRACE)
    _book(tmp_path / "w.1.addresses.npz", "this")

    book = read_recording(tmp_path / "w.1.pt.trace.json").book

    assert book is not None
    assert book.names == ("this",)


def test_no_book(tmp_path: Path) -> None:
    assert read_recording(write_snapshot(tmp_path / "x.snapshot.pickle", sizes=[1])).book is None


def test_a_damaged_book_is_told_and_the_recording_is_read_without(tmp_path: Path) -> None:
    (tmp_path / "w.pt.trace.json").write_bytes(TRACE)
    (tmp_path / "w.addresses.npz").write_bytes(b"PK\x03\x04rest")

    read = read_recording(tmp_path / "w.pt.trace.json")

    assert read.book is None
    assert "address book cannot be read" in read.timeline.notes[-1]


@pytest.mark.parametrize("at", [6, 8, 10])
def test_a_flipped_byte_in_the_head_of_a_zip_file(tmp_path: Path, at: int) -> None:
    # given
    save_timeline(read_recording(write_snapshot(tmp_path / "b.pickle", sizes=[1000])).timeline, tmp_path / "a.npz")
    data = bytearray((tmp_path / "a.npz").read_bytes())
    head = data.rindex(b"PK\x01\x02")
    data[head + at] = 0xFF
    (tmp_path / "a.npz").write_bytes(data)
    # when, then
    with pytest.raises(FileFormatError, match=r"a\.npz: "):
        read_recording(tmp_path / "a.npz")


@pytest.mark.parametrize("zero", ['"x"', "null", "[]", "1e999", "NaN", "-5", str(10**400), "1.5e300", "{}"])
def test_an_odd_zero_of_a_traces_clock(tmp_path: Path, zero: str) -> None:
    (tmp_path / "a.json").write_text(f'{{"baseTimeNanoseconds": {zero}, "traceEvents": [{json.dumps(MEMORY)}]}}')

    try:
        read_recording(tmp_path / "a.json")
    except FileFormatError as error:
        assert str(error).startswith(f"{tmp_path / 'a.json'}: ")  # noqa: PT017  (or it is read)


def test_deep_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"traceEvents": [{"args": ' + "[" * 100_000)

    with pytest.raises(FileFormatError):
        read_recording(tmp_path / "a.json")


def test_halves_of_surrogate_pairs_become_question_marks(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "x.pickle", sizes=[1000])
    snapshot = pickle.loads(path.read_bytes())
    snapshot["device_traces"][0][0]["frames"] = [{"filename": "caf\udce9.py", "line": 1, "name": "f"}]
    path.write_bytes(pickle.dumps(snapshot))

    files = [frame.file for frame in read_recording(path).timeline.stacks.frames]

    assert "caf?.py" in files
