"""Storages by address, written and read again; files that nobody should trust."""

from __future__ import annotations

import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.errors import FileFormatError
from tbmem.model.address_book import SCHEMA_VERSION, AddressBook, StorageNote
from tbmem.model.category import Category

NOTES = [
    StorageNote(1_700_000_000_000_000_000, "cuda:0", 0x7F00_0000_0000, 4096, Category.PARAMETER, "blocks.0.weight"),
    StorageNote(1_700_000_000_000_000_001, "cuda:0", 0xFFFF_FFFF_FFFF_FFFF, 0, Category.GRADIENT, "blocks.0.weight"),
    StorageNote(1_700_000_000_000_000_002, "cpu", 1, 1 << 40, Category.ACTIVATION, ""),
    StorageNote(1_700_000_000_000_000_003, "cuda:0", 512, 8, Category.OPTIMIZER_STATE, "λ.exp_avg"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.1.addresses.npz"


def write_npz(path: Path, header: object, **others: Any) -> None:
    """A file such as ``save`` writes, with another header or other columns."""
    book = AddressBook.from_notes(NOTES)
    names = ("time_ns", "device", "address", "bytes", "category", "name")
    columns: dict[str, Any] = {**{name: getattr(book, name) for name in names}, **others}
    np.savez(path, header=np.array(json.dumps(header)), **columns)


def good_header(**others: object) -> dict[str, object]:
    book = AddressBook.from_notes(NOTES)
    header = {"schema": 1, "kind": "address_book", "devices": book.devices, "names": book.names, "about": {}}
    return {**header, **others}


def test_a_book_survives_its_file(path: Path) -> None:
    # given
    book = AddressBook.from_notes(NOTES, {"run": "a", "steps": [4, 6], "complete": True})
    # when
    book.save(path)
    again = AddressBook.load(path)
    # then
    assert again.notes() == NOTES
    assert again.about == {"run": "a", "steps": [4, 6], "complete": True}
    assert len(again) == 4


def test_names_and_devices_are_stored_once() -> None:
    # given / when
    book = AddressBook.from_notes(NOTES)
    # then
    assert book.devices == ("cuda:0", "cpu")
    assert book.names == ("blocks.0.weight", "", "λ.exp_avg")
    assert list(book.name) == [0, 0, 1, 2]


def test_an_empty_book_survives_its_file(path: Path) -> None:
    # given
    book = AddressBook.from_notes([])
    # when
    book.save(path)
    again = AddressBook.load(path)
    # then
    assert len(again) == 0
    assert again.notes() == []
    assert again.address.dtype == np.uint64


@pytest.mark.parametrize("category", list(Category))
def test_every_category_survives(category: Category, path: Path) -> None:
    note = NOTES[0]._replace(category=category)
    AddressBook.from_notes([note]).save(path)
    assert AddressBook.load(path).notes() == [note]


def test_the_file_keeps_the_name_it_was_given(tmp_path: Path) -> None:
    # given: numpy would append .npz
    path = tmp_path / "half.npz.partial"
    # when
    AddressBook.from_notes(NOTES).save(path)
    # then
    assert [each.name for each in tmp_path.iterdir()] == ["half.npz.partial"]
    assert AddressBook.load(str(path)).notes() == NOTES


def test_a_newer_schema_is_named(path: Path) -> None:
    # given
    write_npz(path, good_header(schema=SCHEMA_VERSION + 1))
    # when / then
    with pytest.raises(FileFormatError, match=f"schema {SCHEMA_VERSION + 1}") as caught:
        AddressBook.load(path)
    assert str(path) in str(caught.value)


def test_what_a_later_version_adds_is_ignored(path: Path) -> None:
    # given
    write_npz(path, good_header(more=1), stream=np.zeros(4))
    # when / then
    assert AddressBook.load(path).notes() == NOTES


@pytest.mark.parametrize(
    "header",
    [
        good_header(kind="timeline"),
        {},
        {"schema": 1, "kind": "address_book"},
        good_header(schema="2"),
        [1, 2],
        None,
        "address_book",
    ],
    ids=["other kind", "empty", "no tables", "schema is text", "list", "null", "text"],
)
def test_another_header_is_refused(header: object, path: Path) -> None:
    # given
    write_npz(path, header)
    # when / then
    with pytest.raises(FileFormatError, match="addresses.npz"):
        AddressBook.load(path)


def test_a_missing_column_is_refused(path: Path) -> None:
    np.savez(path, header=np.array(json.dumps(good_header())))
    with pytest.raises(FileFormatError, match="time_ns"):
        AddressBook.load(path)


def test_columns_of_different_length_are_refused(path: Path) -> None:
    write_npz(path, good_header(), bytes=np.zeros(3, dtype=np.int64))
    with pytest.raises(FileFormatError):
        AddressBook.load(path)


def test_a_row_that_points_outside_its_table_is_refused(path: Path) -> None:
    write_npz(path, good_header(names=["only one"]))
    with pytest.raises(FileFormatError):
        AddressBook.load(path)


def _bare_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"hello\n", b"\x00" * 1000, pickle.dumps({"a": 1}), _bare_array()],
    ids=["empty", "zip's first bytes", "text", "zeros", "pickle", "one bare array"],
)
def test_a_file_that_is_something_else_is_refused(content: bytes, path: Path) -> None:
    # given
    path.write_bytes(content)
    # when / then
    with pytest.raises(FileFormatError, match="addresses.npz"):
        AddressBook.load(path)


def test_a_file_that_was_cut_off_is_refused_wherever_it_was_cut(path: Path) -> None:
    # given
    AddressBook.from_notes(NOTES * 20).save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 31):
        path.write_bytes(whole[:length])
        # when / then
        with pytest.raises(FileFormatError):
            AddressBook.load(path)


def test_a_flipped_bit_is_refused_or_harmless(path: Path) -> None:
    # given: each byte of the file damaged in turn
    AddressBook.from_notes([NOTES[0]._replace(address=4096 * row) for row in range(1, 60)]).save(path)
    whole, dice, surprises = path.read_bytes(), random.Random(0), set[str]()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        # when
        try:
            AddressBook.load(path)
        except FileFormatError:
            pass
        except Exception as error:
            surprises.add(f"{type(error).__module__}.{type(error).__name__}")
    # then
    assert surprises == set()


def test_a_file_that_is_not_there_is_an_os_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AddressBook.load(path)


class Hostile:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("place", ["header", "address", "bare"])
def test_a_hostile_pickle_is_refused_and_never_run(place: str, path: Path, tmp_path: Path) -> None:
    # given
    mark = tmp_path / "mark"
    bomb = np.array([Hostile(mark)], dtype=object)
    if place == "header":
        np.savez(path, header=bomb, allow_pickle=True)
    elif place == "address":
        write_npz(path, good_header(), address=bomb)
    else:
        path.write_bytes(pickle.dumps(Hostile(mark)))
    # when / then
    with pytest.raises(FileFormatError):
        AddressBook.load(path)
    assert not mark.exists()
