"""Answers on runs as they are on disk: whole, being written, broken, gone."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.model.monitor_log import to_line
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.offline.queries.run_reader import MissingError, OutsideError
from tests.offline.queries.folder import GIB, LEAK, Folder
from tests.offline.snapshots import write_snapshot


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


def test_only_what_is_new_is_told(folder: Folder) -> None:
    path = folder.log("a", steps=3, end=False)
    first = folder.ask("live", run="a")
    assert (first["more"], first["running"], first["status"]["a"]["status"]) == (False, True, "unknown")

    nothing = folder.ask("live", run="a", after=first["cursor"])
    assert (nothing["more"], nothing["series"][0]["x"], nothing["cursor"]) == (True, [], first["cursor"])
    assert nothing["findings"] is nothing["windows"] is None

    # when rows, a finding and the end are written
    whole = folder.log("b", steps=5, finding=LEAK).read_text().splitlines(keepends=True)
    with path.open("a") as file:
        file.writelines(whole[4:])
    more = folder.ask("live", run="a", after=first["cursor"])

    assert (more["series"][0]["x"], more["series"][0]["points"], more["extent"]) == ([4, 5], 2, [1, 5])
    assert [one["kind"] for one in more["findings"]] == ["leak"]
    assert (more["running"], more["status"]["a"]["status_text"]) == (False, "ended in order")


def test_a_long_log_comes_in_parts_to_who_does_not_wait(folder: Folder) -> None:
    # given a log of several blocks, with a finding and the end behind them
    folder.log("a", steps=12_000, finding=LEAK)

    answer, shares = folder.ask("live", run="a", within=0), []
    while answer["unread"]:
        shares.append(answer["unread"])
        assert (answer["findings"] or [], answer["forecasts"]) == ([], [])
        assert answer["status"]["a"]["status_text"] == "ended in order"
        before, answer = answer, folder.ask("live", run="a", within=0, after=answer["cursor"])
        assert answer["more"]
        assert answer["series"][0]["x"][0] > before["series"][0]["x"][-1]

    assert shares == sorted(set(shares), reverse=True) != []
    assert answer["series"][0]["x"][-1] == 12_000
    assert [one["kind"] for one in answer["findings"]] == ["leak"]
    # and who waits is told the same as if nobody had hurried
    other = Folder(folder.path)
    assert folder.ask("live", run="a") == other.ask("live", run="a")


def test_the_cards_of_a_long_log_come_in_parts_too(folder: Folder) -> None:
    folder.log("a", steps=12_000, finding=LEAK)

    shares, steps, told = [1.0], [0], []
    while shares[-1]:
        (run,) = folder.ask("overview", run="a", within=0)["runs"]
        shares.append(run["unread"])
        steps.append(run["step"])
        told.append((run["status_text"], bool(run["next_steps"])))

    assert shares == sorted(set(shares), reverse=True)
    assert steps == sorted(set(steps))
    assert (steps[-1], len(steps) > 3) == (12_000, True)
    # what to do is said at the end only
    assert told == [*[("ended in order", False)] * (len(told) - 1), ("ended in order", True)]
    # and the figures are those of who waited
    both = [each.ask("overview", run="a")["runs"][0] for each in (folder, Folder(folder.path))]
    assert both[0].pop("findings") == both[1].pop("findings")
    small = [[{**card, "levels": [], "peaks": []} for card in run["cards"]] for run in both]  # drawn from some rows
    assert small[0] == small[1]


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


def test_not_a_number_is_not_known(folder: Folder) -> None:
    path = folder.log("a", steps=2)
    with path.open("a") as file:
        file.write(
            '{"type":"samples","step":3,"time":1003.0,"device":"cuda:0","allocated":NaN,"first_step":3,"count":1}\n'
        )

    assert folder.ask("live", run="a")["series"][0]["allocated"][-1] is None
    assert folder.ask("overview", run="a")["runs"][0]["cards"]


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


@pytest.mark.parametrize("view", ["timeline", "range", "peak", "tensors", "segments", "operators", "stack"])
def test_views_of_a_recording(view: str, recorded: Folder) -> None:
    answer = recorded.ask(view, run="a", file="w.tbmem.npz", **({"row": 0} if view == "stack" else {}))

    assert (answer["head"]["run"], answer["head"]["file"]) == ("a", "w.tbmem.npz")
