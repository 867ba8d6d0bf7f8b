"""Builds the documentation's site as ``make docs`` does, and reads its pages."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import PROJECT


def built_once(folders: pytest.TempPathFactory) -> Path:
    """The folder of the site, built by the first of the test run's processes that asks for it."""
    shared = folders.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else folders.getbasetemp()
    with FileLock(shared / "site.lock"):
        if not (shared / "site").exists():
            _build(shared / "site-in-work").rename(shared / "site")
    return shared / "site"


def _build(folder: Path) -> Path:
    """Build the site without a network; an assertion fails with what MkDocs says of it."""
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=PROJECT,
        env={**os.environ, **offline, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


class Page(HTMLParser):
    """Anchors, links and images of a page of the site."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        """What a browser asks for to show the page."""
        self.without_words: list[str] = []
        """Images that have no alternative text."""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names and asks for."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") != "canonical":
            self.loaded.append(values["href"])
        if tag == "img" and not values.get("alt"):
            self.without_words.append(values.get("src", ""))
