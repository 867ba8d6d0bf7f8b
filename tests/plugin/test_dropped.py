"""Files dropped onto the page: stored, read and listed as runs; refused in one line; gone with the server."""

from __future__ import annotations

import gc
import io
import re
from pathlib import Path

import pytest

from tbmem import web
from tbmem.errors import UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.plugin.dropped import LARGEST, stored_name
from tests.offline.queries.folder import Folder
from tests.offline.snapshots import write_snapshot
from tests.plugin.test_plugin import HERE, Tab

BYTES = "application/octet-stream"
NAME = "x.snapshot.pickle"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path / "runs")
    found.log("a")
    return found


@pytest.fixture
def tab(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tab:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return Tab(str(folder.path))


@pytest.fixture
def snapshot(tmp_path: Path) -> bytes:
    write_snapshot(tmp_path / NAME, [64 << 20, 700])
    return (tmp_path / NAME).read_bytes()


def left(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()]


def test_a_snapshot_is_a_run_of_its_own(tab: Tab, snapshot: bytes) -> None:
    first = tab.send(NAME, snapshot)
    second = tab.send(NAME, snapshot)

    assert first.json == {"run": f"Dropped files/{NAME}", "view": "timeline", "file": NAME}
    assert second.json["run"] == f"Dropped files/{NAME} (2)"
    assert sorted(tab.runs) == [first.json["run"], second.json["run"], "a"]
    answer = tab.data(f"peak?run={first.json['run']}&file={NAME}")
    assert answer.json["peak"]["bytes"] >= 64 << 20


def test_a_log_is_shown_live(tab: Tab, folder: Folder) -> None:
    answer = tab.send("node 7.jsonl", (folder.path / "a" / MONITOR_LOG).read_bytes())

    assert answer.json == {"run": "Dropped files/node 7.jsonl", "view": "live"}
    assert len(tab.data("live?run=Dropped files/node 7.jsonl").json["series"][0]["x"]) == 10


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("notes.txt", b"hello", "its name ends with none of .pickle"),
        ("bad.pickle", b"\x80\x04", "bad.pickle"),
        ("system.pickle", b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        ("half.json", b'{"traceEvents": [', "half.pt.trace.json"),
        ("hello.jsonl", b"hello\n", "not a monitor log of tbmem: none of its lines can be read"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line_and_deleted(
    name: str, content: bytes, told: str, tab: Tab, tmp_path: Path
) -> None:
    answer = tab.send(name, content)

    assert (answer.status_code, answer.text.count("\n")) == (400, 0)
    assert told in answer.text
    assert str(tmp_path) not in answer.text
    assert left(tmp_path) == []
    assert tab.runs == ["a"]


def test_a_file_above_the_limit_is_refused_unread(tab: Tab) -> None:
    with pytest.raises(UsageError, match="copy it into the log folder"):
        tab.plugin._dropped.add("x.pickle", io.BytesIO(), LARGEST + 1)

    # and the page, which does not send it, has the same limit
    assert re.search(r"LARGEST = 2 \* 2 \*\* 30;", web.files(".js")["drop.js"])
    assert LARGEST == 2 << 30


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[not an address"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"},
        {"Content-Type": "text/plain"},
    ],
)
def test_other_sites_cannot_send_files(headers: dict[str, str], tab: Tab, snapshot: bytes) -> None:
    answer = tab.send(NAME, snapshot, **headers)

    assert (answer.status_code, tab.runs) == (403, ["a"])


def test_the_page_itself_can_and_only_by_a_post(tab: Tab, snapshot: bytes) -> None:
    assert tab.send(NAME, snapshot, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert tab.send(NAME, snapshot, Origin="http://localhost").status_code == 200
    assert tab.get(f"{HERE}/drop?name=x.pickle").status_code == 404


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/x.pickle", "_.._etc_x.pickle"),
        (".x.pickle.gz", "x.pickle.gz"),
        ("a\\b\n.json", "a_b_.pt.trace.json"),
        ("w.npz", "w.tbmem.npz"),
    ],
)
def test_names_are_made_plain(name: str, expected: str) -> None:
    assert stored_name(name) == expected


def test_nothing_is_left_when_the_server_ends(tab: Tab, snapshot: bytes, tmp_path: Path) -> None:
    tab.send(NAME, snapshot)
    assert len(left(tmp_path)) == 1

    tab.plugin._dropped = None
    gc.collect()

    assert list((tmp_path / "temporary").iterdir()) == []


def test_less_than_was_announced(tab: Tab, snapshot: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="arrived: drop it again"):
        tab.plugin._dropped.add(NAME, io.BytesIO(snapshot[:-10]), len(snapshot))

    assert left(tmp_path) == []
