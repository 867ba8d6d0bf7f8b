"""Files that are damaged at random: every command and every answer of the tab says so in a line, or goes on."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tbmem.cli.main import run_command
from tbmem.errors import TbmemError
from tbmem.model.files import MONITOR_LOG
from tbmem.model.timeline import save_timeline
from tbmem.offline.queries.answers import Answers
from tbmem.sources.runs.catalog import Catalog, Root
from tests.analysis.timelines import recording, training_step
from tests.mutations import mutated_archive, mutated_json, mutated_lines, mutated_pickle
from tests.offline.queries.folder import LEAK, Folder
from tests.offline.snapshots import write_snapshot
from tests.sources.trace.traces import as_torch_writes, memory, span

ROUNDS = 12
Mutate = Callable[[random.Random, bytes], bytes]

_EVENTS = [
    *(span("user_annotation", f"ProfilerStep#{number}", 100 * number, 90) for number in range(2)),
    span("cpu_op", "aten::linear", 5, 20),
    *(memory(10 + at, 64 + at, 64) for at in range(3)),
    *(memory(150 + at, 64 + at, -64) for at in range(2)),
]


def _log(folder: Path) -> Path:
    finding = {"finding": LEAK, "window": {"number": 1, "first_step": 2, "last_step": 3, "files": ["w.tbmem.npz"]}}
    return Folder(folder).log("a", **finding)


def _snapshot(folder: Path) -> Path:
    return write_snapshot(folder / "a.snapshot.pickle", sizes=[1000, 2000], freed=[3000])


def _trace(folder: Path) -> Path:
    path = folder / "a.pt.trace.json"
    path.write_text(as_torch_writes(_EVENTS))
    return path


def _timeline(folder: Path) -> Path:
    path = folder / "a.tbmem.npz"
    save_timeline(recording(*training_step(0, 0), *training_step(1, 10), {"bytes": 50}), path)
    return path


def _estimate(folder: Path) -> Path:
    _timeline(folder)
    figures = {"job": {"model": "m", "batch": 1}, "peak_allocated": 9, "allocated_range": [8, 10], "notes": ["a"]}
    path = folder / "a.estimate.json"
    path.write_text(json.dumps({**figures, "alternatives": [{"change": "b", "reserved": 5, "fit": "fits"}]}))
    return path


@pytest.mark.parametrize(
    ("write", "mutate"),
    [
        (_log, mutated_lines),
        (_snapshot, mutated_pickle),
        (_trace, mutated_json),
        (_timeline, mutated_archive),
        (_estimate, mutated_json),
    ],
)
def test_a_damaged_file(
    write: Callable[[Path], Path], mutate: Mutate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file and a folder for what is written
    (tmp_path / "runs").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    path = write(tmp_path / "runs")
    whole = path.read_bytes()
    for seed in range(ROUNDS):
        chance = random.Random(f"{write.__name__} {seed}")
        # when it is damaged
        path.write_bytes(mutate(chance, whole))
        for words in chance.sample(list(_commands(path, tmp_path / "runs")), 2):
            _call(words)
        _ask(tmp_path / "runs")
    # then nothing but the project's own errors has been raised


def _commands(path: Path, folder: Path) -> Iterator[Sequence[object]]:
    if path.match(MONITOR_LOG):
        run = path.parents[2]
        yield "watch", folder, "--once", "--all"
        yield "watch", run, "--json"
        yield "check", run, "--max-peak", "1GiB", "--no-leak", "--max-growth", "1MiB/step"
        yield "report", run, "--json"
        yield "report", run, "--html", "report.html"
        yield "compare", run, run
        return
    recording = next(iter(sorted(path.parent.glob("a.tbmem.npz"))), path)
    yield "analyze", recording, "--json"
    yield "analyze", recording, "--what-if", "expandable_segments:True"
    yield "report", folder, "--html", "report.html"
    yield "compare", recording, recording, "--json"
    yield from (("export", recording, "--to", to) for to in ("perfetto", "speedscope", "csv", "json", "memory_viz"))


def _call(words: Sequence[object]) -> None:
    with contextlib.suppress(TbmemError):
        try:
            run_command([str(word) for word in words])
        except SystemExit as ended:
            if ended.code not in (None, 0, 1):
                raise


def _ask(folder: Path) -> None:
    """Ask every question about what the folder holds, as the page does."""
    answers = Answers(Catalog([Root(folder)]))
    questions: list[tuple[str, dict[str, list[str]]]] = [("index", {}), ("overview", {})]
    for run in answers.catalog.runs().values():
        of_run = {"run": [run.name]}
        questions += [(view, of_run) for view in ("overview", "live", "ranks", "estimate", "prediction", "remedies")]
        questions += [("live", {**of_run, "x": ["time"]})]
        for file in run.recordings:
            of_file = {**of_run, "file": [file.file], "row": ["0"], "segment": ["0"], "at": ["1"]}
            views = ("timeline", "reserved", "peak", "segments", "steps", "events", "tensors", "operators", "range")
            questions += [(view, of_file) for view in (*views, "state", "stack", "segment", "sides", "prediction")]
    for view, params in questions:
        with contextlib.suppress(TbmemError):
            json.dumps(answers.answer(view, params), allow_nan=False)
