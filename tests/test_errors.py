"""Errors in one line."""

from __future__ import annotations

import pytest

from tbmem.errors import described, did_you_mean, first_line


@pytest.mark.parametrize(
    ("error", "line", "words"),
    [
        (ValueError("a\nb"), "a", "ValueError: a"),
        (ValueError(), "ValueError", "ValueError"),
        (ValueError("\n"), "ValueError", "ValueError"),
        (KeyError("size"), "'size'", "KeyError: 'size'"),
    ],
)
def test_an_error_in_one_line(error: Exception, line: str, words: str) -> None:
    assert (first_line(error), described(error)) == (line, words)


@pytest.mark.parametrize(("name", "words"), [("gtp2", "did you mean gpt2?"), ("bert", "")])
def test_a_misspelt_name(name: str, words: str) -> None:
    assert did_you_mean(name, ["gpt2", "llama-7b"]) == words
