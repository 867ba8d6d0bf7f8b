"""Lines of one layout: their numbers are those that JSON reads."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tbmem.sources.line_layout import Layout


def under_each_other(*lines: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(lines), np.uint8).reshape(len(lines), -1)


def test_the_numbers_are_those_of_json() -> None:
    # given times whose last digit a division could lose, and the largest whole number that is exact
    random = np.random.default_rng(0)
    times = [f"17{random.integers(10**8):08}.{random.integers(10**6):06}" for _ in range(2000)]
    lines = [b'{"a":%d,"time":%s,"n":null}' % (2**53 - 1 - at, time.encode()) for at, time in enumerate(times)]

    fits, columns = Layout(lines[0]).read(under_each_other(*lines), ("a", "time", "b"))

    assert fits.all()
    assert list(columns) == ["a", "time"]
    for name, found in columns.items():
        assert found.tolist() == [json.loads(line)[name] for line in lines]


def test_what_is_no_digit_must_be_the_same() -> None:
    lines = (b'{"a":12,"d":"x:1"}', b'{"a":99,"d":"x:1"}', b'{"a":-2,"d":"x:1"}', b'{"a":1:,"d":"x:1"}')

    fits, columns = Layout(lines[0]).read(under_each_other(*lines, b'{"a":12,"d":"x:2"}'), ("a", "d"))

    assert fits.tolist() == [True, True, False, False, False]
    assert columns["a"].tolist() == [12, 99]
    assert "d" not in columns


def test_numbers_that_have_to_be_the_same() -> None:
    lines = under_each_other(b'{"a":1,"rank":0}', b'{"a":2,"rank":1}')

    fits, columns = Layout(b'{"a":1,"rank":0}', same=("rank",)).read(lines, ("a", "rank"))

    assert (fits.tolist(), list(columns)) == ([True, False], ["a"])


def test_numbers_that_are_not_exact_are_left_to_others() -> None:
    large, long = b'{"a":9007199254740993}', b'{"a":12345678901234567890}'

    assert not Layout(large).read(under_each_other(large), ("a",))[0].any()
    assert Layout(long).read(under_each_other(long), ("a",))[1] == {}


@pytest.mark.parametrize("line", [b'{"a":1', b"[1]", b'{"a":1,"a":2}', b'{"x\\"a":1,"b":2}'])
def test_lines_of_which_nothing_can_be_told(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Layout(line)
