"""What the adapters share: which training is watched, by whom, and what a copy is."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tbmem import requirements
from tbmem.errors import MissingDependencyError
from tbmem.integrations import base
from tbmem.integrations.base import ContextManagerMixin, RunResults, TrainingSession
from tbmem.model.monitor_log import MonitorLog

NO_PROFILER = {"enabled": False}


@pytest.fixture
def make_session(tmp_path: Path) -> Callable[..., TrainingSession]:
    def make(*, hears_errors: bool = True) -> TrainingSession:
        return TrainingSession(
            None, (), {"run": {"logdir": str(tmp_path)}, "profiling": NO_PROFILER}, hears_errors=hears_errors
        )

    return make


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_a_copy_has_the_settings_and_no_training(
    copied: Callable[[TrainingSession], TrainingSession], make_session: Callable[..., TrainingSession]
) -> None:
    # given a session whose training runs
    session = make_session()
    session.begin(None)
    session.note("framework", "1", 0)
    session.step()

    # when it is copied
    other = copied(session)

    # then the copy watches nothing, and can watch a training of its own
    assert (other.is_active, other.memory, session.is_active) == (False, None, True)
    session.end()
    other.begin(None)
    assert other.is_active
    other.end()
    assert session.memory is not None
    assert other.memory is not None
    assert session.memory.folder != other.memory.folder


def test_the_second_session_of_a_training_has_no_part_in_it(
    make_session: Callable[..., TrainingSession],
    tmp_path: Path,
    only_log: Callable[[Path], MonitorLog],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # given two sessions that are given the same training
    training = object()
    first, second = make_session(), make_session()
    with caplog.at_level("WARNING", logger="tbmem"):
        for session in (first, second):
            session.begin(None, training=training)

        # when it runs
        for session in (first, second) * 3:
            assert not session.is_repeated()
            session.step()
        for session in (first, second):
            session.end()

    # then there is one run, and one line says why
    assert only_log(tmp_path).rows[-1].sample.step == 3
    assert second.memory is None
    (said,) = caplog.records
    assert "has a tbmem callback already" in said.getMessage()


def test_a_session_that_is_given_twice_takes_part_once(
    make_session: Callable[..., TrainingSession], tmp_path: Path, only_log: Callable[[Path], MonitorLog]
) -> None:
    session, training = make_session(), object()
    for _ in range(2):
        session.begin(None, training=training)

    assert [session.is_repeated() for _ in range(4)] == [True, False, True, False]
    session.end()

    # and the next training knows nothing of it
    session.begin(None, training=object())
    assert not session.is_repeated()
    session.end()


@pytest.mark.parametrize("hears_errors", [True, False])
def test_a_training_that_failed_without_a_word_is_closed_by_the_next(
    hears_errors: bool, make_session: Callable[..., TrainingSession]
) -> None:
    # given a training of which nothing has been heard since it began
    before = make_session(hears_errors=hears_errors)
    before.begin(None, training=object())

    # when another callback's begins
    session = make_session()
    session.begin(None, training=object())

    # then it is over, unless its framework would have said so: an evaluator runs inside of a trainer's run
    assert before.is_active is hears_errors
    for each in (before, session):
        each.end()


# versions of frameworks

MODULES = {
    "lightning": ("lightning", "lightning.pytorch", "pytorch_lightning"),
    "huggingface": ("transformers",),
    "accelerate": ("accelerate",),
    "ignite": ("ignite",),
    "keras": ("keras",),
}


@pytest.mark.parametrize("adapter", MODULES)
def test_a_missing_framework_names_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MODULES[adapter]:
        if "." in module:
            monkeypatch.delitem(sys.modules, module, raising=False)
        else:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"tbmem.integrations.{adapter}", raising=False)
    if adapter == "lightning":
        monkeypatch.delitem(sys.modules, "pytorch_lightning")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        monkeypatch.setattr(base, "find_spec", lambda name: None)
        monkeypatch.setattr(requirements, "find_spec", lambda name: None)

    with pytest.raises(MissingDependencyError, match=rf"\(tbmem's extra {adapter}\): pip install '") as caught:
        import_module(f"tbmem.integrations.{adapter}")

    assert "\n" not in str(caught.value)


def test_a_framework_s_folder_on_a_remote_storage_is_not_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a training whose framework writes to a bucket
    monkeypatch.chdir(tmp_path)
    session = TrainingSession(None, (), {"profiling": NO_PROFILER})

    # when
    session.begin("s3://bucket/experiments")
    session.end()

    # then
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert "s3://bucket/experiments is no folder of this machine" in caplog.text


def test_an_adapter_tells_of_its_run_as_the_callback_does(make_session: Callable[..., TrainingSession]) -> None:
    # given an adapter that has not begun
    results = RunResults()
    results.session = session = make_session()
    assert (results.summary, results.folder, results.verdicts, results.findings) == (None, None, (), ())

    # when a run has ended
    session.begin(None)
    session.step()
    session.end()

    # then its results are those of the run's callback
    assert session.memory is not None
    assert results.summary is session.memory.summary is not None
    assert results.verdicts == results.summary.verdicts != ()
    assert results.findings == session.memory.findings
    assert results.folder == session.memory.folder is not None


class _Adapter(ContextManagerMixin):
    def __init__(self, session: TrainingSession) -> None:
        self.session = session


def test_a_block_in_which_no_training_called_the_callback_says_so(
    make_session: Callable[..., TrainingSession], caplog: pytest.LogCaptureFixture
) -> None:
    with _Adapter(make_session()):
        pass
    unused = caplog.messages
    caplog.clear()
    with _Adapter(make_session()) as used:
        used.session.begin(None)

    assert unused == ["no training has called this tbmem callback: is it in the trainer's list of callbacks?"]
    assert not any("no training has called" in message for message in caplog.messages)
