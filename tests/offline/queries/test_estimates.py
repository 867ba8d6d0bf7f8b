"""Which estimates lie in a log folder."""

from __future__ import annotations

import json

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.timeline import save_timeline
from tbmem.offline.queries.estimates import estimates_of, read_figures
from tbmem.offline.queries.run_reader import MissingError
from tests.analysis.timelines import recording, training_step
from tests.offline.queries.folder import Folder

PREDICTED = recording(*training_step(0, 0), {"bytes": 80}, source="estimate")


def test_an_estimate_in_a_run_folder_of_its_own_is_laid_over_any_run(recorded: Folder) -> None:
    # given a run without an estimate, then one in another run folder
    assert recorded.ask("estimate", run="a")["empty"] is not None
    (recorded.path / "est").mkdir()
    save_timeline(PREDICTED, recorded.path / "est/gpt2.tbmem.npz")
    (recorded.path / "est/gpt2.estimate.json").write_text(json.dumps({"peak_allocated": 5}))

    answer = recorded.ask("estimate", run="a")
    prediction = recorded.ask("prediction", run="est", file="gpt2.tbmem.npz")

    assert answer["estimates"] == [{"run": "est", "file": "gpt2.tbmem.npz"}]
    assert answer["measured"]["file"] == "w.tbmem.npz"
    assert prediction["peak"] == 5
    assert prediction["variants"][0]["peak"] == PREDICTED.peak(0).bytes


def test_an_estimate_of_the_same_run_is_first_and_the_recording_can_be_chosen(recorded: Folder) -> None:
    (recorded.path / "est").mkdir()
    (recorded.path / "est/x.estimate.json").write_text("{}")
    save_timeline(PREDICTED, recorded.path / "a/estimate.tbmem.npz")
    save_timeline(recording({"bytes": 7, "begin": 0}), recorded.path / "a/small.tbmem.npz")

    answer = recorded.ask("estimate", run="a", file="small.tbmem.npz")

    # without figures, the recording says that it is an estimate
    assert [item["file"] for item in answer["estimates"]] == ["estimate.tbmem.npz", "x.estimate.json"]
    assert answer["measured"]["peak"] == 7
    assert recorded.ask("prediction", run="a", file="estimate.tbmem.npz")["variants"]


def test_what_is_not_there_is_an_error(recorded: Folder) -> None:
    for view, params in (("estimate", {"file": "other.npz"}), ("prediction", {"file": "other.npz"})):
        with pytest.raises(MissingError):
            recorded.ask(view, run="a", **params)


@pytest.mark.parametrize("text", ["[1]", '{"a":'])
def test_figures_that_cannot_be_read_are_an_error(recorded: Folder, text: str) -> None:
    (recorded.path / "a/x.estimate.json").write_text(text)
    (files,) = estimates_of(recorded.answers.catalog.runs().values())

    with pytest.raises(FileFormatError, match=r"x\.estimate\.json: "):
        read_figures(files.figures)
