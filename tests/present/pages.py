"""Looks into a page as a browser would: what it would fetch, and the data of its charts."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

_FETCHED = {"src", "href", "data", "srcset", "action", "poster", "background", "xlink:href"}


class Look(HTMLParser):
    """What a page consists of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.styles = ""
        self.words = ""
        self.policy = ""
        self._charts: list[str] = []
        self._inside = ""
        self.feed(page)
        self.close()

    @property
    def charts(self) -> list[dict[str, Any]]:
        """Data and layout of each chart."""
        return [json.loads(text) for text in self._charts]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._inside = tag
        if tag == "script" and given.get("type") == "application/json":
            self._inside = "chart"
            self._charts.append("")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given.get("content") or ""
        self.addresses += [value or "" for name, value in attrs if name in _FETCHED]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "chart":
            self._charts[-1] += data
        elif self._inside == "style":
            self.styles += data
        elif self._inside != "script":
            self.words += data
            if self.tables and self.tables[-1] and self.tables[-1][-1]:
                self.tables[-1][-1][-1] += data


def assert_it_is_offline(look: Look) -> None:
    """Nothing in the page would be fetched from anywhere, and the page forbids it."""
    assert [one for one in look.addresses if "//" in one] == []
    assert "url(" not in look.styles
    assert "@import" not in look.styles
    assert look.policy.startswith("default-src 'none'")
    assert "http" not in look.policy
