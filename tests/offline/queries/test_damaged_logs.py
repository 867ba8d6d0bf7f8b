"""A damaged log, or a file that is none, costs what it holds and takes nothing else down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tbmem.model.monitor_log import read_monitor_log
from tbmem.offline.queries.answers import Answers
from tbmem.sources.runs.catalog import Catalog, Root
from tests.offline.queries.folder import Folder

_VIEWS = ("overview", "live", "ranks")


def damage(path: Path, was: str, now: str) -> None:
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now, 1))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('"rank":0', '"rank":"x"'),
        ('"started":1000.0', '"started":null'),
        ('"host":"node7"', '"host":[]'),
        ('"type":"header"', '"type":["header"]'),
        ('"torch":"2.13"', '"torch":2.13'),
    ],
)
def test_a_header_with_an_odd_value(folder: Folder, was: str, now: str) -> None:
    # given two runs, the header of one of which is damaged
    folder.log("good")
    damage(folder.log("bad"), was, now)
    # when
    table = folder.ask("overview")["table"]
    answers = {view: folder.ask(view, run="bad") for view in _VIEWS}
    # then both are shown, and that a record is missing
    assert {row["run"] for row in table} == {"good", "bad"}
    notes = [answers["overview"]["runs"][0]["notes"], answers["live"]["notes"], answers["ranks"]["notes"]]
    assert notes == [["Rank 0: 1 damaged record of its log left out."]] * 3
    assert answers["live"]["series"][0]["step"] == list(range(1, 11))


@pytest.mark.parametrize("device", ["", "\\u0000", "CPU ", "cuda:x", "cpu\\n"])
def test_a_row_whose_device_is_none(folder: Folder, device: str) -> None:
    # given a run whose last row names no device
    path = folder.log("a", steps=10)
    head, _, tail = path.read_text().rpartition('"device":"cuda:0"')
    path.write_text(f'{head}"device":"{device}"{tail}')

    (run,) = folder.ask("overview", run="a")["runs"]

    # then it is left out, and said, by both readers
    assert [card["device"] for card in run["cards"]] == ["cuda:0"]
    assert run["step"] == 9
    assert run["notes"] == ["Rank 0: 1 damaged record of its log left out."]
    assert (len(read_monitor_log(path).rows), read_monitor_log(path).damaged_lines) == (9, 1)


def test_the_second_header_is_damaged(folder: Folder) -> None:
    # given a run that was resumed
    path = folder.log("a", end=False)
    with path.open("a") as log:
        log.write('{"type":"header","rank":"x"}\n' + path.read_text())

    (run,) = folder.ask("overview", run="a")["runs"]

    assert run["notes"][0] == "Rank 0: 1 damaged record of its log left out."


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("name", ["plugins/tbmem/monitor.jsonl", "w.pt.trace.json", "w.estimate.json", "w.tbmem.npz"])
def test_a_pipe_in_a_log_folder(folder: Folder, name: str) -> None:
    # given
    folder.log("good")
    pipe = folder.path / "bad" / name
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    answers = Answers(Catalog([Root(folder.path)], clock=folder.tick), now=lambda: 1100.0)
    # when every answer is asked for that reads it, none waits
    listed = {run["run"] for run in answers.answer("index", {})["runs"]}
    overview = answers.answer("overview", {})
    # then
    assert listed == {"good", "bad"}
    assert overview["table"] is None or {row["run"] for row in overview["table"]} == {"good", "bad"}
    if name.endswith(".jsonl"):
        assert "a named pipe" in overview["unreadable"][0]["error"]


def test_a_log_without_any_valid_record(folder: Folder) -> None:
    folder.log("good")
    folder.log("bad").write_text('{"type":"header","rank":"x"}\n')

    overview = folder.ask("overview")

    ((run, error),) = ((each["run"], each["error"]) for each in overview["unreadable"])
    assert (run, "plugins/tbmem/monitor.jsonl: not a monitor log of tbmem: none of" in error) == ("bad", True)
