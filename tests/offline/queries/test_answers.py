"""Answers on runs as they are on disk: whole, being written, broken, gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.model.monitor_log import SampleRow, to_line
from tbmem.model.sample import MemorySample
from tbmem.model.timeline import load_timeline, save_timeline
from tbmem.offline.queries.answers import Answers
from tbmem.offline.queries.run_reader import MissingError, OutsideError
from tbmem.sources.runs.catalog import Catalog, Root
from tests.analysis.timelines import recording, training_step
from tests.offline.snapshots import write_snapshot

HEADER = {"type": "header", "rank": 0, "started": 1000.0, "host": "node7", "torch": "2.13"}
LEAK = {
    "kind": "leak",
    "severity": "critical",
    "device": "cuda:0",
    "rank": 0,
    "first_step": 3,
    "last_step": 8,
    "message": "grows",
    "advice": "use .item()",
    "evidence": {"line": {"file": "/a/train.py", "line": 41, "text": "losses.append(loss)"}, "known_by": "seen"},
}
GIB = 1 << 30


class Folder:
    """A log folder with a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 0.0
        self.answers = Answers(Catalog([Root(path)], clock=self._tick), now=lambda: 1100.0)

    def _tick(self) -> float:
        self.clock += 10
        return self.clock

    def ask(self, view: str, **params: Any) -> Any:
        given = {name.rstrip("_"): [str(one) for one in np.atleast_1d(value)] for name, value in params.items()}
        answer = self.answers.answer(view, given)
        # plain JSON, without NaN
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
        return answer

    def log(self, run: str, steps: int = 10, *, rank: int = 0, peak: int = GIB, end: bool = True, **more: Any) -> Path:
        path = self.path / run / MONITOR_LOG
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({**HEADER, "rank": rank}, separators=(",", ":"))]
        for step in range(1, steps + 1):
            sample = MemorySample(
                step=step,
                time=1000.0 + step,
                device="cuda:0",
                rank=rank,
                allocated=GIB // 2 + step,
                reserved=GIB,
                peak_allocated=peak,
                device_total=4 * GIB,
            )
            lines.append(to_line(SampleRow(step, 1, sample.allocated, sample.allocated, sample)))
        lines += [json.dumps({"type": kind, **value}, separators=(",", ":")) for kind, value in more.items()]
        lines += ['{"type":"end","time":1010.0,"steps":10,"verdicts":[]}'] if end else []
        path.write_text("\n".join(lines) + "\n")
        return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "runs").mkdir()
    return Folder(tmp_path / "runs")


@pytest.fixture
def recorded(folder: Folder) -> Folder:
    """A run ``a`` with a timeline of two steps."""
    timeline = recording(*training_step(0, 0), *training_step(1, 10), {"bytes": 50})
    (folder.path / "a").mkdir()
    save_timeline(timeline, folder.path / "a/w.tbmem.npz")
    return folder


def test_the_index(folder: Folder) -> None:
    assert folder.ask("index")["empty"]["commands"]
    folder.log("ended")
    folder.log("open", end=False)
    (folder.path / "files").mkdir()
    write_snapshot(folder.path / "files/x.pickle", sizes=[1000])

    index = folder.ask("index")

    status = {run["run"]: run["status"] for run in index["runs"]}
    assert status["ended"] == "ended"
    assert status["files"] == "files"
    assert status["open"] == "unknown"
    assert index["empty"] is None
    # however the last line is spaced
    log = folder.path / "open" / MONITOR_LOG
    log.write_text(log.read_text() + '{"type": "end", "time": 1.0}\n')
    assert {run["status"] for run in folder.ask("index")["runs"]} == {"ended", "files"}
    # a signal that ended it is an end, too
    folder.log("killed", end=False)
    log = folder.path / "killed" / MONITOR_LOG
    log.write_text(log.read_text() + '{"type":"signal","name":"SIGTERM","time":1.0,"step":10,"ends":true}\n')
    assert {run["status"] for run in folder.ask("index")["runs"]} == {"ended", "files", "terminated"}
    assert set(index["colours"]) == {"categories"}


def test_the_cards_of_a_run(folder: Folder) -> None:
    folder.log("a", finding=LEAK)

    (run,) = folder.ask("overview", run="a")["runs"]

    (card,) = run["cards"]
    assert (card["verdict"], card["severity"]) == ("leak", "critical")
    assert card["line"] == "train.py:41  losses.append(loss)"
    assert (card["peak"], card["capacity"], card["headroom"]) == (GIB, 4 * GIB, 3 * GIB)
    assert card["growth_per_step"] == pytest.approx(1.0)
    assert run["next_steps"][0] == "use .item()"
    assert (run["status"], run["step"], run["host"]) == ("ended", 10, "node7")
    assert [one["kind"] for one in run["findings"]] == ["leak"]


def test_live_series(folder: Folder) -> None:
    window = {"number": 1, "first_step": 4, "last_step": 6, "complete": True, "files": ["x.pickle"]}
    oom = {**LEAK, "kind": "oom", "message": "out"}
    folder.log("a", finding=LEAK, window=window)
    folder.log("b", steps=3, finding=oom)
    write_snapshot(folder.path / "a/x.pickle", sizes=[1000])

    live = folder.ask("live", run=["a", "b"])

    assert [(one["run"], len(one["x"])) for one in live["series"]] == [("a", 10), ("b", 3)]
    first = live["series"][0]
    assert first["allocated"][0] == GIB // 2 + 1
    assert first["host"] == [None] * 10
    assert (first["capacity"], live["extent"]) == (4 * GIB, [1, 10])
    assert live["findings"][0]["x"] == 8
    (shown,) = live["windows"]
    assert (shown["x0"], shown["x1"], shown["files"]) == (4, 6, ["x.pickle"])
    assert [one["run"] for one in live["ooms"]] == ["b"]
    # and over time, and a part of it
    late = folder.ask("live", run="a", x="time", from_=4, to=6)
    assert late["series"][0]["x"] == [4, 5, 6]
    assert late["windows"][0]["x0"] == 4


def test_thinning_loses_no_extreme(folder: Folder) -> None:
    path = folder.log("a", steps=3000)
    odd = MemorySample(step=3001, time=4001.0, device="cuda:0", allocated=1, peak_allocated=3 * GIB)
    with path.open("a") as file:
        file.write(to_line(SampleRow(3001, 1, 1, 1, odd)) + "\n")

    (series,) = folder.ask("live", run="a", points=50)["series"]

    assert len(series["x"]) < 400
    assert series["points"] == 3001
    assert max(series["peak"]) == 3 * GIB
    assert min(series["lowest"]) == 1


def test_a_run_that_is_being_written(folder: Folder) -> None:
    path = folder.log("a", steps=2, end=False)
    assert folder.ask("live", run="a")["series"][0]["x"] == [1, 2]

    with path.open("a") as file:
        sample = MemorySample(step=3, time=1003.0, device="cuda:0", allocated=5)
        file.write(to_line(SampleRow(3, 1, 5, 5, sample)) + '\n{"type":"sam')

    assert folder.ask("live", run="a")["series"][0]["x"] == [1, 2, 3]
    assert folder.ask("live", run="a")["errors"] == []


def test_not_a_number_is_not_known(folder: Folder) -> None:
    path = folder.log("a", steps=2)
    with path.open("a") as file:
        file.write(
            '{"type":"samples","step":3,"time":1003.0,"device":"cuda:0","allocated":NaN,"first_step":3,"count":1}\n'
        )

    assert folder.ask("live", run="a")["series"][0]["allocated"][-1] is None
    assert folder.ask("overview", run="a")["runs"][0]["cards"]


def test_a_broken_file_is_an_item_with_its_error(folder: Folder) -> None:
    folder.log("a/rank0")
    folder.log("a/rank1", rank=1).write_text("hello\nworld\n")
    (folder.path / "a/bad.pickle").write_bytes(b"\x80\x04")
    write_snapshot(folder.path / "a/good.pickle", sizes=[1000])

    with pytest.raises(FileFormatError, match="bad.pickle"):
        folder.ask("peak", run="a", file="bad.pickle")
    (run,) = folder.ask("overview", run="a")["runs"]

    assert {one["file"] for one in run["errors"]} == {f"rank1/{MONITOR_LOG}", "bad.pickle"}
    assert "not a monitor log" in next(one["error"] for one in run["errors"] if one["kind"] == "log")
    assert len(run["cards"]) == 1
    assert folder.ask("peak", run="a", file="good.pickle")["peak"]["bytes"] == 1000
    index = folder.ask("index")
    errors = {one["file"]: one["error"] is not None for one in index["runs"][0]["recordings"]}
    assert errors == {"bad.pickle": True, "good.pickle": False}


def test_a_file_that_vanishes_grows_or_is_mended(recorded: Folder) -> None:
    path = recorded.path / "a/w.tbmem.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(FileFormatError):
        recorded.ask("timeline", run="a", file="w.tbmem.npz")

    path.write_bytes(whole)
    assert recorded.ask("timeline", run="a", file="w.tbmem.npz")["total"]
    path.unlink()

    with pytest.raises(MissingError):
        recorded.ask("timeline", run="a", file="w.tbmem.npz")


def test_the_stack_adds_up_to_the_curve(recorded: Folder) -> None:
    timeline = recorded.ask("timeline", run="a", file="w.tbmem.npz", axis="event")

    columns = zip(*timeline["bytes"], strict=True)
    assert [sum(column) for column in columns] == timeline["total"]
    truth = load_timeline(recorded.path / "a/w.tbmem.npz")
    assert max(timeline["total"]) == truth.peak(0).bytes == timeline["peak"]["bytes"]
    assert timeline["steps"]["label"] == ["step 0", "step 1"]
    assert {"FORWARD", "BACKWARD"} <= set(timeline["phases"]["label"])
    # and zoomed it begins with the level there
    part = recorded.ask("timeline", run="a", file="w.tbmem.npz", axis="event", from_=10, to=15)
    assert part["axis"]["range"] == [10, 15]
    assert part["total"][0] == int(truth.curve(0).bytes[10])
    assert part["x"][0] == 10


def test_bands_and_the_rest_make_the_layers(recorded: Folder) -> None:
    for largest in (1, 3, 100):
        answer = recorded.ask("timeline", run="a", file="w.tbmem.npz", axis="event", largest=largest)
        found = answer["allocations"]
        bands = found["bands"]
        rest = [list(layer) for layer in answer["bytes"]]
        for size, layer, first, last in zip(*(bands[key] for key in ("bytes", "layer", "first", "last")), strict=True):
            for moment in range(first, last):
                rest[layer][moment] -= size
        assert min(map(min, rest)) >= 0
        assert found["shown"] == len(bands["row"]) == min(largest, found["count"])
    # and with all of them nothing is left
    assert max(map(max, rest)) == max(found["unlisted"])


def test_bands_last_as_long_as_their_allocations(recorded: Folder) -> None:
    # given a range in which nothing happens after event 14
    answer = recorded.ask("timeline", run="a", file="w.tbmem.npz", axis="event", from_=12, to=14.5)

    # then those that are alive reach its end, and those from before its beginning
    bands = answer["allocations"]["bands"]
    rows = load_timeline(recorded.path / "a/w.tbmem.npz").rows
    for row, x0, x1, before in zip(*(bands[key] for key in ("row", "x0", "x1", "before")), strict=True):
        freed = 0 <= rows.free_event[row] <= 14
        assert x1 == (rows.free_event[row] if freed else 14.5)
        assert before == (rows.alloc_event[row] < 12)
        assert x0 == max(rows.alloc_event[row], 12)


def test_a_brushed_range(recorded: Folder) -> None:
    place = {"run": "a", "file": "w.tbmem.npz", "axis": "event"}
    whole = recorded.ask("range", **place)
    truth = load_timeline(recorded.path / "a/w.tbmem.npz").rows

    assert whole["allocated"]["count"] == int((truth.alloc_event >= 0).sum())
    assert whole["freed"]["bytes"] == int(truth.bytes[truth.free_event >= 0].sum())
    assert whole["at_begin"] == 50
    assert whole["at_end"] == whole["alive"]["bytes"] + whole["throughout"]["bytes"]
    part = recorded.ask("range", **place, from_=12, to=14)
    made = (truth.alloc_event >= 12) & (truth.alloc_event <= 14)
    assert part["allocated"]["bytes"] == int(truth.bytes[made].sum())
    assert sum(part["allocated"]["by_category"]) == part["allocated"]["bytes"]


def test_the_peak_and_its_tensors(recorded: Folder) -> None:
    place = {"run": "a", "file": "w.tbmem.npz"}
    truth = analyze(load_timeline(recorded.path / "a/w.tbmem.npz")).main

    peak, tensors = recorded.ask("peak", **place), recorded.ask("tensors", **place)

    for key in ("by_category", "by_phase", "merged", "by_line", "by_operator"):
        assert sum(peak[key]["bytes"]) == truth.peak.bytes
    modules = peak["modules"]
    assert (modules["parent"][0], modules["bytes"][0]) == (-1, truth.peak.bytes)
    assert sum(modules["own_bytes"]) == truth.peak.bytes
    assert sum(tensors["columns"]["bytes"]) == tensors["found_bytes"] == truth.peak.bytes
    assert tensors["columns"]["bytes"] == sorted(tensors["columns"]["bytes"], reverse=True)
    # and filtered, sorted, page by page
    category = tensors["columns"]["category"][0]
    some = recorded.ask("tensors", **place, category=category, sort="bytes", order="asc", limit=2, offset=1)
    sizes = sorted(
        size
        for size, name in zip(tensors["columns"]["bytes"], tensors["columns"]["category"], strict=True)
        if name == category
    )
    assert some["columns"]["bytes"] == sizes[1:3]
    assert some["found"] == len(sizes)
    assert recorded.ask("tensors", **place, search="no such word")["found"] == 0


def test_segments_to_scale(folder: Folder) -> None:
    (folder.path / "a").mkdir()
    write_snapshot(folder.path / "a/x.pickle", sizes=[1000, 5000], freed=[700])

    answer = folder.ask("segments", run="a", file="x.pickle")

    segments, blocks = answer["segments"], answer["blocks"]
    assert segments["start"] == [0, len(blocks["bytes"])]
    assert sum(blocks["bytes"]) == segments["bytes"][0] == answer["reserved"]
    held = sum(size for size, state in zip(blocks["bytes"], blocks["state"], strict=True) if state == 1)
    assert held == answer["allocated"]
    assert sum(answer["parts"]["bytes"]) == answer["reserved"]
    assert folder.ask("segments", run="a", file="x.pickle", device="cuda:0")["empty"] is None


def test_ranks_and_the_odd_one(folder: Folder) -> None:
    for rank in range(4):
        folder.log(f"a/rank{rank}", rank=rank, peak=(3 if rank == 2 else 1) * GIB)
    write_snapshot(folder.path / "a/rank1/x.pickle", sizes=[1000])

    ranks = folder.ask("ranks", run="a", recordings=1)

    assert ranks["columns"]["rank"] == [0, 1, 2, 3]
    assert ranks["columns"]["odd"] == [False, False, True, False]
    assert ranks["odd"].startswith("Rank 2 (GPU 0) differs from the others")
    assert (ranks["recordings"]["rank"], ranks["recordings"]["peak"]) == ([1], [1000])
    assert ranks["empty"] is None


def test_two_runs(folder: Folder) -> None:
    folder.log("a")
    folder.log("b", peak=2 * GIB)
    for run, size in (("a", 1 << 20), ("b", 3 << 20)):
        write_snapshot(folder.path / run / "x.pickle", sizes=[size])

    found = folder.ask("compare", before="a", after="b")

    (totals,) = (one["totals"] for one in found["runs"])
    assert (totals["before"][0], totals["after"][0], totals["percent"][0]) == (GIB, 2 * GIB, 100.0)
    assert found["recordings"][0]["totals"]["change"][0] == 2 << 20
    assert found["grown_percent"] == pytest.approx(200)
    sides = folder.ask("sides", before="a", after="b")
    assert (sides["name"], sides["peak"], sides["odd"]) == (["a", "b"], [1 << 20, 3 << 20], [False, False])
    assert sides["message"] is None


def test_a_prediction_over_a_measurement(recorded: Folder) -> None:
    assert recorded.ask("estimate", run="a")["empty"] is not None
    predicted = recording(*training_step(0, 0), {"bytes": 80}, source="estimate")
    save_timeline(predicted, recorded.path / "a/estimate.tbmem.npz")
    (recorded.path / "a/estimate.json").write_text(json.dumps({"peak_allocated": 5}))

    answer = recorded.ask("estimate", run="a")

    assert answer["predicted"]["peak"] == predicted.peak(0).bytes
    assert answer["measured"]["file"] == "w.tbmem.npz"
    expected = 100 * answer["predicted"]["peak"] / answer["measured"]["peak"] - 100
    assert answer["error_percent"] == pytest.approx(expected, abs=0.01)
    assert answer["summary"] == {"peak_allocated": 5}
    assert answer["categories"]["name"]


def test_one_allocation(recorded: Folder) -> None:
    row = recorded.ask("tensors", run="a", file="w.tbmem.npz")["columns"]["row"][0]

    one = recorded.ask("stack", run="a", file="w.tbmem.npz", row=row)

    assert (one["row"], one["bytes"] > 0) == (row, True)
    with pytest.raises(UsageError, match="rows 0 to"):
        recorded.ask("stack", run="a", file="w.tbmem.npz", row=10**6)


@pytest.mark.parametrize(
    ("view", "params", "error"),
    [
        ("nothing", {}, MissingError),
        ("overview", {"run": "x"}, MissingError),
        ("live", {}, UsageError),
        ("live", {"run": "a", "x": "miles"}, UsageError),
        ("live", {"run": "a", "from_": 5, "to": 1}, UsageError),
        ("timeline", {"run": "../a", "file": "w.tbmem.npz"}, MissingError),
        ("timeline", {"run": "a"}, UsageError),
        ("timeline", {"run": "a", "file": "other.npz"}, MissingError),
        ("timeline", {"run": "a", "file": "../../secret.pickle"}, OutsideError),
        ("timeline", {"run": "a", "file": "/etc/passwd"}, OutsideError),
        ("timeline", {"run": "a", "file": "link.pickle"}, OutsideError),
        ("timeline", {"run": "a", "file": "w\0x"}, OutsideError),
        ("timeline", {"run": "a", "file": "w.tbmem.npz", "device": "cuda:7"}, UsageError),
        ("timeline", {"run": "a", "file": "w.tbmem.npz", "axis": "miles"}, UsageError),
        ("timeline", {"run": "a", "file": "w.tbmem.npz", "from_": "nan"}, UsageError),
        ("timeline", {"run": "a", "file": "w.tbmem.npz", "from_": 5, "to": 1, "axis": "event"}, UsageError),
        ("timeline", {"run": "a", "file": "w.tbmem.npz", "points": 0}, UsageError),
        ("timeline", {"run": "a", "file": "w.tbmem.npz", "largest": "many"}, UsageError),
        ("tensors", {"run": "a", "file": "w.tbmem.npz", "sort": "colour"}, UsageError),
        ("tensors", {"run": "a", "file": "w.tbmem.npz", "order": "up"}, UsageError),
        ("tensors", {"run": "a", "file": ["w.tbmem.npz", "x"]}, UsageError),
        ("stack", {"run": "a", "file": "w.tbmem.npz"}, UsageError),
    ],
)
def test_refusals(view: str, params: dict[str, Any], error: type[Exception], recorded: Folder) -> None:
    secret = recorded.path.parent / "secret.pickle"
    write_snapshot(secret, sizes=[1])
    (recorded.path / "a/link.pickle").symlink_to(secret)

    with pytest.raises(error) as raised:
        recorded.ask(view, **params)

    assert "\n" not in str(raised.value)
    assert type(raised.value) is error
