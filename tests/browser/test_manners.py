"""Manners of the page: the history, what is missing, where results appear, colours, narrow windows and the keyboard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser import looking
from tests.browser.driving import Browser
from tests.browser.test_interaction import TOP, hash_of
from tests.browser.test_tab import address, ask, trace
from tests.tensorboard_server import Server

__all__ = ["ask", "trace"]
DRAWN = "document.querySelector('main')?.dataset.drawn"


def back(browser: Browser, by: int = -1) -> None:
    """The browser's Back or Forward."""
    browser.leave()
    browser.script(f"history.go({by})")
    browser.enter()


def test_each_view_run_and_range_is_an_entry_in_the_history(browser: Browser, server: Server, trace: str) -> None:
    # given a view, another, another run, and a range in it
    browser.open(address(server, "overview"), "overview")
    browser.go("live")
    browser.go("timeline")
    browser.click("#pick-run")
    browser.click("[data-value='leak']")
    browser.until("document.querySelector('#pick-run').textContent === 'leak' && !document.querySelector('[aria-busy]')")
    looking.columns_of(browser)
    browser.drag(TOP, 0.2, 0.4)
    browser.until("document.querySelector('#brushed .tiles') !== null")
    link = f"{server.address}/{hash_of(browser)}"

    # when one goes back, then each is undone, one after the other
    back(browser)
    browser.until("document.querySelector('#brushed .tiles') === null && !document.querySelector('[aria-busy]')")
    assert browser.text("#pick-run") == "leak"
    back(browser)
    browser.until(f"{DRAWN} === 'timeline' && !/run=leak/.test(window.parent.location.hash)")
    back(browser)
    browser.until(f"{DRAWN} === 'live'")
    back(browser)
    browser.until(f"{DRAWN} === 'overview'")

    # and forward again, and from the link in a new page
    back(browser, 4)
    browser.until(f"{DRAWN} === 'timeline' && document.querySelector('#brushed .tiles') !== null")
    browser.open(link, "timeline")
    browser.until("document.querySelector('#brushed .tiles') !== null")
    assert browser.complaints() == []
