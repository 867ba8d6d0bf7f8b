"""A table whose texts are indices into lists of texts: searched, sorted and read without making a text for each row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.errors import UsageError
from tbmem.model.columns import I64, Bools

_LIMIT = re.compile(r"([<>])(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?")
"""A test of the size, as in the browser's tables: ``>10MiB``."""


class TextTable:
    """Columns of texts and of numbers.

    Args:
        texts: Of each column the texts, and each row's index in them; -1 for none.
        numbers: Of each column the numbers, ``bytes`` among them.
    """

    def __init__(
        self, texts: Mapping[str, tuple[Sequence[str], NDArray[Any]]], numbers: Mapping[str, NDArray[Any]]
    ) -> None:
        self.texts, self.numbers = texts, numbers

    def of(self, column: str, row: I64) -> list[str]:
        """Texts of rows."""
        words, code = self.texts[column]
        return [words[number] if number >= 0 else "" for number in code[row].tolist()]

    def matches(self, row: I64, search: str, columns: Iterable[str]) -> Bools:
        """Whether each word of a search occurs in one of some columns of a row, ignoring case.

        A word as ``>10MiB`` or ``<1gb`` is a limit of ``bytes``.
        """
        matches = np.ones(len(row), np.bool_)
        for word in search.lower().split():
            limit = _LIMIT.fullmatch(word)
            if limit is not None:
                size, least = self.numbers["bytes"][row], float(limit[2]) * 1024 ** " kmgt".index(limit[3] or " ")
                matches &= size > least if limit[1] == ">" else size < least
            else:
                matches &= np.logical_or.reduce([self._contains(column, row, word) for column in columns])
        return matches

    def order(self, row: I64, sort: str, order: str) -> I64:
        """Indices that sort rows; equal rows stay in order.

        Raises:
            UsageError: There is no such column, or no such order.
        """
        if order not in ("asc", "desc"):
            raise UsageError(f"order={order}: write asc or desc")
        if sort in self.texts:
            words, code = self.texts[sort]
            ranks = np.append(np.argsort(np.argsort(np.array(words, dtype=object), kind="stable")) + 1, 0)
            values: NDArray[Any] = ranks[code[row]]
        elif sort in self.numbers:
            values = self.numbers[sort][row]
        else:
            raise UsageError(f"sort={sort}: write one of {', '.join((*self.numbers, *self.texts))}")
        indices: I64 = np.argsort(-values if order == "desc" else values, kind="stable")
        return indices

    def _contains(self, column: str, row: I64, word: str) -> Bools:
        words, code = self.texts[column]
        hits = np.array([word in text.lower() for text in words] + [False], np.bool_)
        matches: Bools = hits[code[row]]
        return matches
