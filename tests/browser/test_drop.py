"""A file of the disk in the tab: dropped onto the page, or chosen with the button."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser.driving import Browser
from tests.browser.test_interaction import hash_of
from tests.browser.test_report import page
from tests.browser.test_tab import address
from tests.offline.snapshots import write_snapshot
from tests.tensorboard_server import Server

__all__ = ["page"]
TOLD = "document.querySelector('#dropped').textContent"
DROP = """(() => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([%s], %s));
  for (const type of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(type, {dataTransfer: transfer, bubbles: true, cancelable: true}));
  }
})()"""


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    write_snapshot(tmp_path / "mine.snapshot.pickle", [96 << 20, 700])
    return tmp_path / "mine.snapshot.pickle"


def test_a_chosen_snapshot_is_opened(browser: Browser, server: Server, snapshot: Path) -> None:
    browser.open(address(server, "overview"), "overview")
    browser.complaints()
    assert browser.script("document.querySelector('#open-file').tabIndex") == 0

    browser.type("#open-input", str(snapshot))

    browser.until("document.querySelector('main')?.dataset.drawn === 'timeline'")
    assert browser.text("#pick-run") == "Dropped files/mine.snapshot.pickle"
    assert "peak 96.00 MiB" in browser.text(".timeline")
    assert browser.script(TOLD) == ""
    assert "p.tbmem.file=mine.snapshot.pickle" in hash_of(browser)
    browser.picture("dropped")
    assert browser.complaints() == []


def test_a_dropped_file_is_opened_or_refused_in_a_line(browser: Browser, server: Server, snapshot: Path) -> None:
    browser.open(address(server, "overview"), "overview")

    browser.script(DROP % ("'hello'", json.dumps("notes.txt")))
    browser.until(f"{TOLD}.includes('its name ends with none of')")
    browser.script(DROP % (f"new Uint8Array({list(snapshot.read_bytes())})", json.dumps("thrown.pickle")))

    browser.until("document.querySelector('#pick-run')?.textContent === 'Dropped files/thrown.pickle'")
    assert browser.script(TOLD) == ""


def test_a_report_says_where_files_are_opened(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri(), "overview", tab=False)

    browser.script(DROP % ("'hello'", json.dumps("x.pickle")))

    browser.until(f"{TOLD}.includes('onto the Memory tab of TensorBoard')")
    assert browser.script("document.querySelector('#open-file')") is None
