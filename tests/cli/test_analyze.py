"""`tbmem analyze` and `tbmem compare`: what they print, and what they answer to bad input."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.model.files import MONITOR_LOG
from tbmem.model.monitor_log import to_line
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tests.analysis.allocator.recording import busy_recorder
from tests.analysis.allocator.test_what_if import as_snapshot
from tests.cli.conftest import Run
from tests.offline.snapshots import snapshot, write_snapshot


def test_every_file_of_the_corpus(run: Run, corpus: Path) -> None:
    oracle = json.loads((corpus / "oracle.json").read_text())["snapshots"]
    name = max(oracle, key=lambda name: oracle[name]["devices"]["0"]["events"])

    done = run("analyze", corpus / "snapshots" / name, "--json")

    assert done.code == 0
    device, wanted = json.loads(done.out)["devices"]["0"], oracle[name]["devices"]["0"]
    assert (device["peak_bytes"], device["reserved_bytes"]) == (wanted["peak_requested"], wanted["reserved"])


def test_the_summary(run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[3 << 20, 1000], freed=[1 << 20])

    done = run("analyze", "rank0.pickle")

    assert done.code == 0
    for words in (
        "rank0 · snapshot",
        "GPU 0 peak 4.00 MiB of requested bytes · forward pass, event 2 of 5 · models/attention.py:7 forward",
        "100.0 % of the 4.00 MiB reserved at most were in use at the peak (excellent)",
        "fragmented 1.00 MiB",
        "Attention",
        "inference",
        "Findings:",
        "Not known:",
    ):
        assert words in done.out


def test_several_are_compared_and_the_odd_one_is_named(run: Run, tmp_path: Path) -> None:
    for rank in range(4):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[1 << 20] * (9 if rank == 2 else 4))

    done = run("analyze", tmp_path)
    as_json = run("analyze", "rank*.pickle", "--json")

    assert (done.code, as_json.code) == (0, 0)
    assert "rank2 differs from the others: peak of 9.00 MiB, where the median is 4.00 MiB" in done.out
    data = json.loads(as_json.out)
    assert list(data["recordings"]) == ["rank0", "rank1", "rank2", "rank3"]
    assert data["odd_one"]["name"] == "rank2"


def test_a_name_and_further_rules(run: Run, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "x.pickle", sizes=[1000])
    (tmp_path / "rules.yaml").write_text("categories:\n- {label: Vision, words: [attention]}\n")

    done = run("analyze", "x.pickle", "--name", "before", "--rules", "rules.yaml", "--json")

    data = json.loads(done.out)
    assert data["name"] == "before"
    assert data["devices"]["0"]["by_category"] == {"Vision": 1000}


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 0), (("--fail-if-grown", "30%"), 0), (("--fail-if-grown", "5%"), 1)]
)
def test_compare(run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    write_snapshot(tmp_path / "a.pickle", sizes=[10 << 20])
    write_snapshot(tmp_path / "b.pickle", sizes=[12 << 20])

    done = run("compare", "a.pickle", "b.pickle", *arguments)
    as_json = run("compare", "a.pickle", "b.pickle", "--json", *arguments)

    assert (done.code, as_json.code) == (code, code)
    assert "+2.00 MiB" in done.out
    assert ("more than 5 %" in done.out) == bool(code)
    data = json.loads(as_json.out)
    assert data["devices"]["0"]["by_category"] == [
        {"name": "Attention", "before": 10 << 20, "after": 12 << 20, "change": 2 << 20, "percent": 20.0}
    ]
    assert data["failed"] == bool(code)


def _write_run(folder: Path, peak: int, last: int, recorded: int = 10) -> None:
    """A run of one step, with a recording; all in MiB."""
    folder.mkdir()
    write_snapshot(folder / "x.pickle", sizes=[recorded << 20])
    sample = MemorySample(step=1, time=1.0, device="cuda:0", allocated=last << 20, peak_allocated=peak << 20)
    log = folder / MONITOR_LOG
    log.parent.mkdir(parents=True)
    row = to_line(SampleRow(1, 1, sample.allocated, sample.allocated, sample))
    log.write_text(f'{{"type":"header","rank":0}}\n{row}\n{{"type":"end"}}\n')


def test_compare_fails_on_whatever_grew(run: Run, tmp_path: Path) -> None:
    # given recordings of one size, of runs of which the second has a higher peak, or keeps more to its end
    for name, peak, last in (("before", 1000, 500), ("higher", 2057, 500), ("leaks", 1048, 947)):
        _write_run(tmp_path / name, peak, last)

    same, higher, leaks = (
        run("compare", "before", name, "--fail-if-grown", "5%") for name in ("before", "higher", "leaks")
    )

    assert (same.code, higher.code, leaks.code) == (0, 1, 1)
    assert "run peak of GPU 0 grew by more than 5 %: +105.7 %, from 1000 MiB to 2.01 GiB" in higher.out
    assert "level at the end of the run of GPU 0 grew by more than 5 %: +89.4 %" in leaks.out
    assert "GREW · leaks/x against before/x: level at the end of the run +89.4 %, from" in " ".join(leaks.out.split())


def test_a_comparison_begins_with_what_the_run_itself_needs(run: Run, tmp_path: Path) -> None:
    # given a run that needs 5 % more, whose few recorded steps need a fifth
    _write_run(tmp_path / "before", 1000, 500)
    _write_run(tmp_path / "after", 1050, 500, recorded=2)
    # when
    done = run("compare", "before", "after")
    # then
    told = " ".join(done.out.split())
    assert re.search(r"GREW · after/x against before/x: run peak \+5\.0 %, .*; recorded peak -80\.0 %", told)


def test_a_comparison_as_a_page(run: Run, tmp_path: Path) -> None:
    for name, size in (("a", 10 << 20), ("b", 12 << 20)):
        write_snapshot(tmp_path / f"{name}.pickle", sizes=[size])

    done = run("compare", "a.pickle", "b.pickle", "--html", "page.html")
    refused = run("compare", "a.pickle", "b.pickle", "--html", "no/page.html")

    assert (done.code, "wrote page.html" in done.out) == (0, True)
    assert 'id="tbmem-data"' in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (refused.code, "cannot be written" in refused.err) == (2, True)


def _trace(*events: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events)}, indent=2).encode()


_GOOD = pickle.dumps(snapshot([1000, 2000]), protocol=4)
_STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1, "dur": 5}


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("ran",)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("cut.pickle", _GOOD[:-40], "cut off"),
        ("cut.json.gz", gzip.compress(_trace(_STEP))[:-9], "cut off"),
        ("cut.json", _trace(_STEP)[:-20], "cut off"),
        ("empty.pickle", b"", "empty"),
        ("no_segments.pickle", pickle.dumps({"segments": [], "device_traces": [[]]}), "no segments"),
        ("other.pickle", pickle.dumps({"weights": [1.0]}), "something else"),
        ("evil.pickle", pickle.dumps({"segments": [_Evil()]}), "nothing was executed"),
        ("no_events.json", _trace(), "without any event"),
        ("no_memory.json", _trace(_STEP), "profile_memory=True"),
        ("letters.txt", b"hello", "neither"),
        ("cut.tbmem.npz", b"PK\x03\x04 and then nothing", "zip"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run: Run, tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    good = write_snapshot(tmp_path / "good.pickle", sizes=[1000])
    commands = (
        ("analyze", name),
        ("analyze", name, "--json"),
        ("analyze", good, name),
        ("compare", name, good),
        ("export", name, "--to", "csv"),
    )
    before = sorted(tmp_path.iterdir())

    for arguments in commands:
        done = run(*arguments)

        assert done.code == 2
        assert done.out == ""
        assert done.err.count("\n") == 1, done.err
        assert done.err.startswith(f"tbmem {arguments[0]}: ")
        assert name in done.err
        assert message in done.err
    # and nothing was written
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("analyze", "nowhere.pickle"), "nowhere.pickle: no such file"),
        (("analyze", "folder"), "no recording in this folder"),
        (("analyze", "good.pickle", "--rules", "none.yaml"), "none.yaml: cannot be read"),
        (("compare", "good.pickle", "good.pickle", "--fail-if-grown", "much"), "not a percentage"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    write_snapshot(tmp_path / "good.pickle", sizes=[1000])
    (tmp_path / "folder").mkdir()

    done = run(*arguments)

    assert done.code == 2
    assert done.err.count("\n") == 1, done.err
    assert message in done.err


def test_what_if_replays_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(1 << 36), seed=5, operations=200)
    (tmp_path / "rank0.pickle").write_bytes(pickle.dumps(as_snapshot(recorder, first=0)))

    done = run("analyze", "rank0.pickle", "--what-if", "expandable_segments:True")
    view = json.loads(run("analyze", "rank0.pickle", "--what-if", "expandable_segments:True", "--json").out)
    wrong = run("analyze", "rank0.pickle", "--what-if", "expandable:True")

    assert done.code == 0
    assert "expandable_segments:True" in done.out
    (device,) = view[0]["devices"]
    assert device["recorded_reserved"] == device["before"]["peak_reserved"] != device["after"][0]["peak_reserved"]
    assert (wrong.code, len(wrong.err.splitlines())) == (2, 1)
    for option in ("--out", "--name", "--rules"):
        refused = run("analyze", "rank0.pickle", "--what-if", "expandable_segments:True", option, "x")
        assert (refused.code, refused.err) == (
            2,
            f"tbmem analyze: {option} x: belongs to a report; --what-if only replays, and writes nothing\n",
        )
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.pickle"]
