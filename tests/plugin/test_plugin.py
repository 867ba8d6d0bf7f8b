"""The plugin as TensorBoard asks it, without a server."""

from __future__ import annotations

import gzip
import json
import logging
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import pytest
from tensorboard.backend import application
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client, TestResponse

from tbmem.model.timeline import save_timeline
from tbmem.plugin.loader import MemoryPluginLoader
from tests.analysis.timelines import recording, training_step
from tests.offline.queries.folder import GIB, LEAK, Folder

HERE = "/data/plugin/tbmem"


class Tab:
    """Asks as the page does."""

    def __init__(self, logdir: str, spec: str = "", prefix: str = "") -> None:
        flags = SimpleNamespace(logdir_spec=spec, path_prefix=prefix)
        self.plugin = MemoryPluginLoader().load(TBContext(logdir=logdir, flags=flags))
        self._client = Client(application.TensorBoardWSGI([self.plugin], path_prefix=prefix))
        self._prefix = prefix

    def get(self, path: str, **headers: str) -> TestResponse:
        return self._client.get(f"{self._prefix}{path}", headers=headers)

    def post(self, question: str) -> TestResponse:
        return self._client.post(f"{self._prefix}{HERE}/data/{question}")

    def send(self, name: str, content: bytes, **headers: str) -> TestResponse:
        """Drop a file."""
        given = {"Content-Type": "application/octet-stream", **headers}
        return self._client.post(f"{self._prefix}{HERE}/drop?name={quote(name)}", data=content, headers=given)

    def data(self, question: str) -> TestResponse:
        return self.get(f"{HERE}/data/{question}")

    @property
    def runs(self) -> list[str]:
        return [one["run"] for one in self.data("index").json["runs"]]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path / "runs")
    found.log("a")
    save_timeline(recording(*training_step(0, 0), {"bytes": 50}), found.path / "a/w.tbmem.npz")
    return found


@pytest.fixture
def tab(folder: Folder) -> Tab:
    return Tab(str(folder.path))


def test_the_entry_point_names_the_loader() -> None:
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.tensorboard_plugins]\ntbmem = "tbmem.plugin.loader:MemoryPluginLoader"' in declared
    point = metadata.EntryPoint("tbmem", "tbmem.plugin.loader:MemoryPluginLoader", "tensorboard_plugins")
    assert point.load() is MemoryPluginLoader


def test_the_listing(tab: Tab, tmp_path: Path) -> None:
    (listed,) = tab.get("/data/plugins_listing").json.values()

    assert (listed["tab_name"], listed["enabled"], listed["disable_reload"]) == ("Memory", True, False)
    assert listed["loading_mechanism"]["type"] == "IFRAME"
    module = tab.get(listed["loading_mechanism"]["module_path"])
    assert (module.status_code, module.mimetype) == (200, "text/javascript")
    # and without a run it is filed under the inactive ones
    (tmp_path / "empty").mkdir()
    assert not Tab(str(tmp_path / "empty")).get("/data/plugins_listing").json["tbmem"]["enabled"]


def test_answers_are_json_compressed_where_that_is_understood(tab: Tab) -> None:
    plain = tab.data("timeline?run=a&file=w.tbmem.npz")
    packed = tab.get(f"{HERE}/data/timeline?run=a&file=w.tbmem.npz", **{"Accept-Encoding": "gzip"})

    assert (plain.status_code, plain.mimetype) == (200, "application/json")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert plain.json["peak"]["bytes"] == max(plain.json["total"])
    assert "no-cache" in plain.headers["Cache-Control"]


@pytest.mark.parametrize("view", ["index", "overview", "live?run=a", "ranks?run=a", "estimate?run=a"])
def test_views_of_runs(view: str, tab: Tab) -> None:
    assert tab.data(view).status_code == 200


@pytest.mark.parametrize(
    ("question", "status", "word"),
    [
        ("nothing", 404, "no view"),
        ("timeline?run=b&file=x", 404, "no such run"),
        ("timeline?run=a&file=x.pickle", 404, "no such recording"),
        ("timeline?run=a", 400, "file= is missing"),
        ("timeline?run=a&file=w.tbmem.npz&from=NaN", 400, "not a number"),
        ("timeline?run=a&file=w.tbmem.npz&device=cuda:3", 400, "device=cuda:3"),
        ("timeline?run=a&file=../../secret.pickle", 403, "outside"),
        ("timeline?run=a&file=..%2F..%2Fsecret.pickle", 403, "outside"),
        ("timeline?run=a&file=%2e%2e%2f%2e%2e%2fsecret.pickle", 403, "outside"),
        ("timeline?run=a&file=/etc/passwd", 403, "outside"),
        ("timeline?run=a&file=link.pickle", 403, "outside"),
        ("timeline?run=..&file=secret.pickle", 404, "no such run"),
        ("timeline?run=%2Fetc&file=passwd", 404, "no such run"),
        ("timeline?run=a&file=x%00", 403, "outside"),
    ],
)
def test_refusals_are_one_line(question: str, status: int, word: str, tab: Tab, folder: Folder) -> None:
    secret = folder.path.parent / "secret.pickle"
    secret.write_bytes(b"\x80\x04K\x01.")
    (folder.path / "a/link.pickle").symlink_to(secret)

    answer = tab.data(question)

    assert answer.status_code == status
    assert word in answer.text
    assert answer.text.count("\n") == 0
    assert str(folder.path.parent) not in answer.text


def test_a_broken_file_is_no_broken_page(tab: Tab, folder: Folder) -> None:
    (folder.path / "a/bad.pickle").write_bytes(b"\x80\x04")
    for name in ("text.pickle", "empty.pt.trace.json", "half.json.gz"):
        (folder.path / "a" / name).write_text("" if "empty" in name else "hello")

    for name in ("bad.pickle", "text.pickle", "empty.pt.trace.json", "half.json.gz"):
        answer = tab.data(f"peak?run=a&file={name}")
        assert (answer.status_code, name in answer.text) == (400, True)
        assert str(folder.path) not in answer.text

    items = {one["file"]: one["error"] for one in tab.data("index").json["runs"][0]["recordings"]}
    assert [name for name, error in items.items() if error is None] == ["w.tbmem.npz"]


def test_an_error_that_nobody_thought_of(
    tab: Tab, folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("tbmem.offline.queries.run_reader.analyze", broken)
    with caplog.at_level(logging.CRITICAL):
        answer = tab.data("peak?run=a&file=w.tbmem.npz")

    assert (answer.status_code, "cannot be analysed: IndexError" in answer.text) == (400, True)
    assert tab.data("overview").json["runs"][0]["errors"][0]["file"] == "w.tbmem.npz"


@pytest.mark.parametrize("name", ["static/index.js", "../plugin/plugin.py", "%2e%2e/units.py", "page.js/x", "index.js"])
def test_no_other_file_is_served(name: str, tab: Tab) -> None:
    assert tab.get(f"{HERE}/{name}").status_code == 404


def test_the_front_end_is_one_module_that_is_kept_for_long(tab: Tab) -> None:
    address = tab.plugin.frontend_metadata().es_module_path

    answer = tab.get(f"{HERE}{address}", **{"Accept-Encoding": "gzip"})

    assert gzip.decompress(answer.data).startswith(b"export const { render } = ")
    assert answer.mimetype == "text/javascript"
    assert "max-age=31536000" in answer.headers["Cache-Control"]
    assert "max-age" not in tab.get(f"{HERE}/page.js?v=old").headers["Cache-Control"]
    style = tab.get(f"{HERE}/page.css")
    assert (style.mimetype, b".share-bar" in style.data) == ("text/css", True)


def test_log_folders_with_names(folder: Folder) -> None:
    spec = f"one:{folder.path},two:{folder.path / 'a'}"

    assert sorted(Tab("", spec).runs) == ["one/a", "two/."]


def test_without_a_log_folder_nothing_is_read(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> None:
    monkeypatch.chdir(folder.path)

    index = Tab("").data("index").json

    assert index["runs"] == []
    assert "without a log folder" in index["empty"]["title"]


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> None:
    monkeypatch.setenv("HOME", str(folder.path.parent))

    assert Tab("~/runs").runs == ["a"]


def test_below_a_prefix(folder: Folder) -> None:
    tab = Tab(str(folder.path), prefix="/some/where")

    assert tab.runs == ["a"]
    assert tab.get(f"{HERE}/page.js").status_code == 200


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    index = Tab(str(tmp_path / "nothing")).data("index").json

    assert "no such folder" in index["notes"][0]
    assert index["empty"] is not None


def test_strange_names(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "runs")
    name = "a b&c=d?#</script>é\"'"
    folder.log(name.replace("/", "_"))

    (run,) = Tab(str(folder.path)).runs
    answer = Tab(str(folder.path)).data(f"overview?run={quote(run)}")

    assert answer.json["runs"][0]["run"] == run


def test_five_hundred_runs(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "runs")
    for number in range(500):
        folder.log(f"run{number:03}", steps=1)
    tab = Tab(str(folder.path))

    index, overview = tab.data("index").json, tab.data("overview").json

    assert len(index["runs"]) == 500
    assert {one["status"] for one in index["runs"]} == {"ended"}
    assert (len(overview["runs"]), len(overview["table"])) == (0, 500)


def test_a_run_that_still_writes_is_shown_as_it_grows(
    tab: Tab, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbmem.sources.runs.catalog._FRESH_SECONDS", 0.0)
    path = folder.log("b", steps=3, end=False)
    before = tab.data("live?run=b").json

    text = path.read_text().replace('"step":3', '"step":4').splitlines()[-1]
    path.write_text(path.read_text() + text + "\n")
    after = tab.data("live?run=b").json

    assert (before["series"][0]["x"], before["running"]) == ([1, 2, 3], True)
    assert after["series"][0]["x"] == [1, 2, 3, 4]


def test_a_part_of_a_log_is_not_taken_for_the_whole_later(tab: Tab, folder: Folder) -> None:
    folder.log("long", steps=12_000)
    parts = [tab.data("live?run=long&within=0").json for _ in range(2)]

    assert 1 > parts[0]["unread"] > parts[1]["unread"]
    assert tab.data("live?run=long").json["unread"] == 0


def test_no_answer_has_nan(tab: Tab, folder: Folder) -> None:
    path = folder.log("n", steps=2)
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace(f'"reserved":{GIB}', '"reserved":NaN')
    lines[2] = lines[2].replace('"time":1002.0', '"time":NaN')
    odd = {"type": "finding", **LEAK, "evidence": {"bytes_per_step": float("nan")}}
    lines += [lines[1].replace('"allocated":', '"allocated":Infinity,"x":'), json.dumps(odd)]
    lines += ['{"type":"window","number":1}', '{"type":"finding","kind":"leak","severity":"info","last_step":"x"}']
    path.write_text("\n".join(lines) + "\n")

    for view in ("overview?run=n", "live?run=n", "live?run=n&x=time", "ranks?run=n", "compare?before=n&after=a"):
        json.loads(tab.data(view).text, parse_constant=pytest.fail)


def test_a_large_window_is_a_small_answer(tmp_path: Path) -> None:
    # given sixty thousand allocations of random lives
    random = np.random.default_rng(0)
    rows = [
        {"bytes": int(size), "begin": 2 * at, "end": 2 * at + 1 + 2 * int(life)}
        for at, (size, life) in enumerate(
            zip(random.integers(1, 1 << 20, 4000), random.integers(0, 50, 4000), strict=True)
        )
    ]
    (tmp_path / "runs/a").mkdir(parents=True)
    save_timeline(recording(*rows), tmp_path / "runs/a/w.tbmem.npz")
    tab = Tab(str(tmp_path / "runs"))

    for question in ("timeline", "timeline?points=20000", "timeline?largest=5000", "tensors", "range", "peak"):
        view, _, more = question.partition("?")
        answer = tab.data(f"{view}?run=a&file=w.tbmem.npz&{more}")
        assert (answer.status_code, len(answer.data) < 2 << 20) == (200, True), question


def test_what_nobody_thought_of_is_a_line_too(
    tab: Tab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("colour")

    monkeypatch.setattr("tbmem.offline.queries.answers.overview_of", broken)
    with caplog.at_level(logging.CRITICAL):
        answer = tab.data("overview?run=a")

    assert (answer.status_code, "cannot be shown: KeyError" in answer.text) == (400, True)


def test_work_is_listed_and_cancelled_by_a_post_only(tab: Tab) -> None:
    assert tab.data("progress").json == {"work": []}
    # who cancels what has been read by now is not told of an error
    assert tab.post("cancel?work=7").status_code == 200
    assert tab.post("cancel?work=x").status_code == 400
    assert tab.data("cancel?work=7").status_code == 404
