"""Types of what is printed as JSON, from records whose keys change on their way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_type_hints

from tbmem.present.json_output import changed


@dataclass
class Record:
    """A record."""

    number: int
    name: str = ""


def test_keys_are_added_replaced_and_left_out() -> None:
    made = changed(Record, "Printed", without=("name",), number=str, total=int)

    assert get_type_hints(made) == {"number": str, "total": int}
    assert (made.__name__, made.__doc__, made.__required_keys__) == ("Printed", "A record.", {"number", "total"})
