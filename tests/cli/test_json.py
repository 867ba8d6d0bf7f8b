"""What each command prints with ``--json`` fits the schema that the documentation publishes.

What takes a process of its own (demo, estimate, sweep) is validated by the tests of these commands.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator

from docs.site.json_schemas import json_section, schemas
from tbmem import MemoryCallback
from tbmem.analysis.estimates.fit import Alternative, Fit
from tbmem.api.results import Estimate, as_result
from tbmem.cli.main import COMMANDS
from tbmem.model.rehearsal import Largest, Trial
from tbmem.present.json_output import OUTPUTS
from tbmem.present.text.rehearsal import largest_view, rehearsal_view
from tbmem.sources.counters import malloc
from tests.analysis.estimates.test_fit import judged
from tests.cli.conftest import Run
from tests.json_output import validate
from tests.offline.snapshots import write_snapshot
from tests.rehearsal.records import process, rehearsal


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with a window each, the second of which keeps what it computes; and a snapshot."""
    folder = tmp_path_factory.mktemp("runs")
    sections = {"monitor": {"log_every_n_steps": 1}, "profiling": {"warmup": 1, "active": 1, "repeat": 1}}
    for name, size in (("before", 1), ("after", 4 << 20)):
        kept = []
        with (
            pytest.MonkeyPatch.context() as patch,
            MemoryCallback(run={"logdir": str(folder), "name": name}, output={"console": False}, **sections) as memory,
        ):
            # how many of the few steps are read shall not depend on how busy this machine is
            patch.setattr(malloc, "_SHARE_OF_A_STEP", 1.0)
            patch.setattr(malloc, "_CREDIT", 1.0)
            for _ in range(40):
                kept.append(torch.zeros(size, dtype=torch.uint8))
                time.sleep(0.005)
                memory.step()
    write_snapshot(folder / "rank0.pickle", [3 << 20, 1000], freed=[1 << 20])
    return folder


def test_every_command_that_has_the_option_has_a_schema() -> None:
    commands = {name: import_module(f"tbmem.cli.{name}").command for name in COMMANDS}

    assert {name for name, command in commands.items() if "as_json" in signature(command).parameters} == set(OUTPUTS)


@pytest.mark.parametrize("command", OUTPUTS)
def test_schemas_are_schemas(command: str) -> None:
    Draft202012Validator.check_schema(schemas()[command])

    # and the command's page has a table or the values of each record
    text = "\n".join(json_section(command))
    assert all(f'id="json-{name}"' in text for name in schemas()[command]["$defs"])


@pytest.mark.parametrize(
    "words",
    [
        "analyze before",
        "analyze rank0.pickle",
        "analyze rank0.pickle before",
        "analyze rank0.pickle --what-if expandable_segments:True",
        "check after --max-peak 1MiB --no-leak --max-growth 1GiB/step",
        "check after --max-peak 900GiB --baseline new.json --update-baseline",
        "compare before after",
        "compare rank0.pickle rank0.pickle --fail-if-grown 5%",
        "config profiling.active=5",
        "report after",
        "report after --out results",
        "report before --html report.html",
        "watch after",
        "watch .",
    ],
)
def test_what_is_printed(words: str, runs: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the folder of the runs, once the fixture has gone to its own
    monkeypatch.chdir(runs)

    # when the command runs, which validates what it prints
    done = run(*words.split(), "--json")

    # then it is no refusal
    assert done.code in (0, 1), done.err
    assert json.loads(done.out)


def test_an_estimate_with_alternatives() -> None:
    other = Alternative(change="bf16", allocated=1, reserved=2, fit=Fit.TIGHT, batch=8)

    result = as_result(Estimate, replace(judged(), alternatives=(other,)))

    validate("estimate", json.loads(result.to_json()))


@pytest.mark.parametrize("is_out_of_memory", [False, True])
def test_rehearsals(is_out_of_memory: bool) -> None:
    # given rehearsals, for which there is no simulated GPU here
    result = rehearsal(process(out_of_memory=is_out_of_memory), needed=52 << 30 if is_out_of_memory else None)
    trials = (Trial(value=1, fits=True, reserved=7, room=9),)

    # then what the command prints of them fits its schema
    validate("rehearse", json.loads(json.dumps(rehearsal_view(result))))
    for value in (None, 1):
        answer = Largest(name="batch", value=value, is_bounded=True, trials=trials, result=result if value else None)
        validate("rehearse", json.loads(json.dumps(largest_view(answer))))


def test_a_key_that_is_not_published_is_an_error() -> None:
    with pytest.raises(AssertionError, match="unexpected"):
        validate("config", {"profiling.active": {"value": 5, "origin": "default", "unexpected": 1}})
