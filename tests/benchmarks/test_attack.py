"""The benchmark that attacks tbmem: its files, its judgement, its table, and a few attacks from end to end."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT
from tests.offline.snapshots import write_snapshot


@pytest.fixture(scope="module")
def attack() -> ModuleType:
    return load(PROJECT / "benchmarks" / "attack.py")


@pytest.fixture(scope="module")
def files(attack: ModuleType) -> ModuleType:
    return sys.modules["attack_files"]


@pytest.fixture(scope="module")
def probes(attack: ModuleType) -> ModuleType:
    return sys.modules["attack_probes"]


def test_damage_is_derived_from_the_seed_and_keeps_a_files_format(files: ModuleType) -> None:
    # given a trace and a log
    events = [{"ph": "X", "name": "a", "ts": number, "args": {"Bytes": 8}} for number in range(30)]
    trace = files.Victim("trace.gz", "run/x", gzip.compress(json.dumps({"traceEvents": events}).encode()))
    log = files.Victim("log", "run/y", b'{"type":"header","rank":0}\n{"type":"samples","step":1}\n')

    # when values are changed
    for number in range(40):
        first, again = (files.damaged(trace, "structure", random.Random(number)) for _ in range(2))
        changed = files.damaged(log, "structure", random.Random(number))

        # then the same seed makes the same file, which is still JSON and differs from the sound one
        assert first == again
        json.loads(gzip.decompress(first))
        assert all(json.loads(line) is not ... for line in changed.splitlines())
    assert files.damaged(trace, "truncated", random.Random(1)) != trace.data


def test_hostile_pickles_are_what_they_say(attack: ModuleType, tmp_path: Path) -> None:
    hostile = sys.modules["attack_hostile"]

    # given one of them, as a careless reader would load it
    found = hostile.hostile_pickles(tmp_path)
    pickle.loads(found[2])

    # then it has run a program
    assert (tmp_path / hostile.MARKER).exists()
    assert len(found) > 30


@pytest.mark.parametrize(
    ("code", "out", "err", "outcome"),
    [
        (0, "peak 3 MiB", "", "plausible"),
        (1, "a limit does not hold", "", "plausible"),
        (2, "", "tbmem check: x: not a monitor log\n", "clear line"),
        (2, "", "", "traceback"),
        (2, "", "tbmem analyze: x: not a pickle (MemoryError)\n", "crash"),
        (1, "", 'Traceback (most recent call last):\n  File "x"\nKeyError: 3\n', "traceback"),
        (139, "", "", "traceback"),
    ],
)
def test_what_a_command_said(probes: ModuleType, code: int, out: str, err: str, outcome: str) -> None:
    assert probes.judged(code, out, err, probes.Probe(("analyze", "x")))[0] == outcome


def test_an_answer_that_is_no_json_is_a_bad_one(probes: ModuleType) -> None:
    probe = probes.Probe(("analyze", "x", "--json"))

    assert probes.judged(0, '{"a": 1}', "", probe)[0] == "plausible"
    assert probes.judged(0, '{"a": NaN}', "", probe)[0] == "traceback"


@pytest.mark.parametrize(
    ("code", "out", "err", "outcome"),
    [
        (0, "DONE", "", "plausible"),
        (0, "DONE", "evidence is off: OSError: no room; training goes on", "clear line"),
        (1, "", "AssertionError: the profile is empty", "traceback"),
        (-11, "", "", "crash"),
        (None, "", "", "hang"),
    ],
)
def test_how_a_program_ended(attack: ModuleType, code: int | None, out: str, err: str, outcome: str) -> None:
    assert sys.modules["attack_faults"].judged_run(code, out, err)[0] == outcome


def test_a_round_has_every_kind_and_each_is_numbered(attack: ModuleType) -> None:
    jobs = list(islice(attack.schedule(), 300))

    kinds = Counter(kind for kind, _ in jobs)
    assert set(kinds) == {*attack.KINDS, attack.FAULTS}
    assert [number for kind, number in jobs if kind == "mutated records"] == list(range(kinds["mutated records"]))
    assert list(attack.schedule("bombs", 7)) == [("bombs", 7)]


def test_alike_failures_are_one_line_with_its_command(attack: ModuleType) -> None:
    # given three failures at one place, and a plausible answer
    tally = attack.Tally()
    for number in (4, 5, 6):
        tally.add("mutated records", number, "tbmem watch x", "traceback", "KeyError: 3 at cli/watch.py:5")
    tally.add("mutated records", 7, "tbmem watch x", "plausible", "")

    # then
    (bad,) = tally.bad.values()
    assert attack.lines_of(bad, "--seed 0") == [
        "traceback (3 times): mutated records: tbmem watch x",
        "    KeyError: 3 at cli/watch.py:5",
        "    python benchmarks/attack.py --seed 0 --only 'mutated records' --number 4",
    ]
    console = Console(record=True, width=100, file=open(os.devnull, "w"))  # noqa: SIM115  (closed with the test)
    console.print(attack.table_of(tally))
    assert "mutated records │     4 │          0 │         1 │         3 │    0 │     0" in console.export_text()
    console.file.close()


@pytest.mark.slow
def test_a_few_attacks_on_readers(attack: ModuleType, files: ModuleType, tmp_path: Path) -> None:
    # given a sound snapshot and a log
    sound = tmp_path / "sound"
    sound.mkdir()
    data = write_snapshot(sound / "small.pickle", sizes=[1000, 2000]).read_bytes()
    victims = [
        files.Victim("snapshot", "run/w.pickle", data),
        files.Victim("log", "run/plugins/tbmem/monitor.jsonl", b"{}\n"),
    ]
    (tmp_path / "victims.pickle").write_bytes(pickle.dumps(victims))

    # when a worker reads truncated ones, asks the tab for files outside, and is asked for what it cannot do
    running = attack.ReaderProcess(tmp_path, "0", 60.0, 1 << 30)
    outcomes = [outcome for number in range(4) for _, outcome, _ in running.attack("truncated files", number)]
    process = running._process
    process.kill()
    died = list(running.attack("truncated files", 0))
    running.close()

    # then each has a line or an answer, and the worker's death is a crash
    assert outcomes
    assert set(outcomes) <= {"clear line", "plausible"}
    assert [outcome for _, outcome, _ in died] == ["crash"]


def test_the_command_line_is_documented() -> None:
    script = PROJECT / "benchmarks" / "attack.py"
    environment = {**os.environ, "COLUMNS": "100"}

    ran = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=True, env=environment
    )

    assert all(option in ran.stdout for option in ("--minutes", "--seed", "--corpus", "--only", "--number"))
