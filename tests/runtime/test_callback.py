"""The callback in a loop: what a user sees, and every odd way to use it."""

from __future__ import annotations

import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tbmem
from tbmem import ConfigError, MemoryCallback, RunFolderError, UsageError
from tbmem.config import load_config
from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import read_monitor_log
from tbmem.runtime.process.file_writer import FileWriter

TrainStep = Callable[[], None]


def _run(callback: MemoryCallback, train_step: TrainStep, steps: int) -> None:
    with callback as memory:
        for _ in range(steps):
            train_step()
            memory.step()


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.fixture
def logdir(tmp_path: Path) -> dict[str, Any]:
    return {"logdir": str(tmp_path), "name": "run"}


def test_what_a_run_knows_is_documented_in_help() -> None:
    for name in ("config", "summary", "verdicts", "findings", "profiler", "monitor", "folder", "is_active"):
        member = getattr(MemoryCallback, name)
        assert isinstance(member, property), name
        assert member.__doc__, name
        assert "return" in member.fget.__annotations__, name


def test_verdicts_and_findings_during_the_run_and_after_it(logdir: dict[str, Any], train_step: TrainStep) -> None:
    callback = MemoryCallback(run=logdir)
    assert (callback.verdicts, callback.findings, callback.summary) == ((), (), None)

    _run(callback, train_step, 20)

    assert callback.summary is not None
    assert callback.verdicts == callback.summary.verdicts
    assert callback.findings == callback.summary.findings
    assert repr(callback.summary).startswith(f"Summary of {callback.folder}: 20 steps in a run of ")
    assert len(repr(callback.summary).splitlines()) <= 4


def test_a_run_from_end_to_end(tmp_path: Path, logdir: dict[str, Any], train_step: TrainStep) -> None:
    # given two windows, and else the defaults
    callback = MemoryCallback(run=logdir, profiling={"repeat": 2})

    # when twenty steps are trained
    _run(callback, train_step, 20)

    # then the summary names everything that was written
    summary = callback.summary
    assert summary is not None
    assert (summary.steps, summary.exception, summary.problems) == (20, None, ())
    assert len(summary.traces) == 2
    assert len(summary.address_books) == 2
    assert [verdict.device for verdict in summary.verdicts] == ["cpu"]
    assert summary.peaks[0].bytes > 0
    for path in (*summary.traces, *summary.address_books, summary.monitor_log):
        assert path is not None
        assert Path(path).is_file()
    log = read_monitor_log(tmp_path / "run/plugins/tbmem/monitor.jsonl")
    assert log.headers[0]["config"]["profiling"]["active"] == 3
    assert [(w["first_step"], w["last_step"]) for w in log.windows] == [(4, 6), (10, 12)]
    assert log.end == {**(log.end or {}), "type": "end", "steps": 20}


def test_the_console_tells_the_story(
    logdir: dict[str, Any], train_step: TrainStep, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tbmem"):
        _run(MemoryCallback(run=logdir, monitor={"line_seconds": 0.0}, profiling={"repeat": 2}), train_step, 20)

    story = _messages(caplog)
    expected = [
        "profiler · records steps 4-6, 10-12",
        "profiler · step 1 wait",
        "profiler · steps 2-3 warm-up",
        "profiler · steps 4-6 recording (window 1 of 2)",
        "profiler · window 1 written: ",
        "profiler · step 7 wait",
        "profiler · steps 8-9 warm-up",
        "profiler · steps 10-12 recording (window 2 of 2)",
        "step 10 · CPU memory · allocated ",
        "profiler · window 2 written: ",
        "profiler · off from step 13 on",
        "step 20 · CPU memory · allocated ",
        "20 steps in a run of ",
        "verdict CPU: ",
        "resident peak CPU: ",
        "profiler: 6 steps recorded in 2 windows",
        "wrote 2 traces, 2 address books, the live log and scalars to ",
        f"look:  tensorboard --logdir {logdir['logdir']}",
    ]
    assert len(story) == len(expected), story
    for beginning in expected:
        assert [line for line in story if line.startswith(beginning)], beginning
    # memory lines and windows come from threads of their own, the others in order
    ordered = [beginning for beginning in expected if not (beginning.startswith("step ") or "written" in beginning)]
    told = [line for line in story if not (line.startswith("step ") or "written" in line)]
    assert all(line.startswith(beginning) for line, beginning in zip(told, ordered, strict=True))


def test_a_run_that_is_too_short_is_no_riddle(logdir: dict[str, Any], train_step: TrainStep) -> None:
    callback = MemoryCallback(run=logdir)

    _run(callback, train_step, 5)

    assert callback.summary is not None
    (finding,) = callback.summary.findings
    assert finding.kind is FindingKind.SHORT_RUN
    assert "after 5 steps" in finding.message
    assert "needs 6 steps" in finding.message
    assert "profiling.wait" in finding.advice


def test_a_run_without_a_step_says_what_to_call(logdir: dict[str, Any], train_step: TrainStep) -> None:
    callback = MemoryCallback(run=logdir)

    _run(callback, train_step, 0)

    assert callback.summary is not None
    (finding,) = callback.summary.findings
    assert "before a training step was counted" in finding.message
    assert "call step() after each training step" in finding.advice


@pytest.mark.parametrize("sections", [{"enabled": False}, {"run": {"ranks": 1}}])
def test_switched_off_costs_nothing_and_writes_nothing(
    tmp_path: Path, sections: dict[str, Any], train_step: TrainStep, caplog: pytest.LogCaptureFixture
) -> None:
    # given a callback that is not enabled, or not on this rank
    sections = {**sections, "run": {"logdir": str(tmp_path / "runs"), **sections.get("run", {})}}

    # when it is used all the same
    with caplog.at_level(logging.DEBUG, "tbmem"), MemoryCallback(**sections) as memory:
        memory.watch(torch.nn.Linear(1, 1))
        for _ in range(3):
            memory.step()
        assert memory.snapshot("x") is None

    # then there is no file, no line and no summary
    assert not (tmp_path / "runs").exists()
    assert memory.summary is None
    # and no line, but for a choice of ranks that leaves nobody
    lines = [record.getMessage().split(":")[0] for record in caplog.records]
    assert lines == ([] if "enabled" in sections else ["run.ranks=1 leaves out the only rank of this run, 0"])


def test_an_exception_passes_through_and_is_summed_up(
    logdir: dict[str, Any], train_step: TrainStep, caplog: pytest.LogCaptureFixture
) -> None:
    # given a loop that fails in its fifth step, inside a window
    callback = MemoryCallback(run=logdir)

    def train() -> None:
        with callback as memory:
            for step in range(10):
                train_step()
                if step == 4:
                    raise ZeroDivisionError("the user's own")
                memory.step()

    # when it runs
    with caplog.at_level(logging.INFO, "tbmem"), pytest.raises(ZeroDivisionError, match="the user's own"):
        train()

    # then the window is written as far as it got, and the summary names the exception
    assert callback.summary is not None
    assert callback.summary.exception == "ZeroDivisionError"
    assert len(callback.summary.traces) == 1
    assert any(line.endswith("ended by ZeroDivisionError") for line in _messages(caplog))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_is_a_finding(logdir: dict[str, Any], error: BaseException) -> None:
    callback = MemoryCallback(run=logdir, profiling={"enabled": False})

    def train() -> None:
        with callback as memory:
            memory.step()
            raise error

    with pytest.raises(type(error)):
        train()
    assert callback.summary is not None
    (finding,) = callback.summary.findings
    assert (finding.kind, finding.first_step) == (FindingKind.OOM, 2)


def test_exit_without_a_step(logdir: dict[str, Any]) -> None:
    callback = MemoryCallback(run=logdir)
    with callback:
        pass

    assert callback.summary is not None
    assert callback.summary.steps == 0
    assert [finding.kind for finding in callback.summary.findings] == [FindingKind.SHORT_RUN]


def test_a_model_that_is_watched_before_the_start_is_a_warning(
    logdir: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tbmem"):
        MemoryCallback(run=logdir).watch(torch.nn.Linear(2, 2))

    assert [line.split(" of this")[0] for line in _messages(caplog)] == ["watch() was called before start()"]


def test_step_outside_of_the_run_is_one_warning(logdir: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    callback = MemoryCallback(run=logdir)
    with caplog.at_level(logging.WARNING, "tbmem"):
        callback.step()
        callback.step()
    assert [line.split(" of this")[0] for line in _messages(caplog)] == ["step() was called before start()"]

    caplog.clear()
    other = MemoryCallback(run=logdir, profiling={"enabled": False})
    with caplog.at_level(logging.WARNING, "tbmem"):
        with other:
            pass
        other.step()
        other.step()
    assert [line.split(" of this")[0] for line in _messages(caplog)] == ["step() was called after the end"]


def test_a_second_callback_at_the_same_time_says_so(logdir: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    # given
    with caplog.at_level(logging.WARNING, "tbmem"), MemoryCallback(run=logdir) as outer:
        # when
        with MemoryCallback(run=logdir):
            pass
        # then
        assert f"the run in {outer.folder} watches this process as well: every figure comes twice" in _messages(caplog)
    # and not when the first has ended
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tbmem"), MemoryCallback(run=logdir):
        assert not any("as well" in message for message in _messages(caplog))


def test_it_serves_one_run(logdir: dict[str, Any]) -> None:
    callback = MemoryCallback(run=logdir, profiling={"enabled": False})
    with callback:
        pass

    with pytest.raises(UsageError, match="make a new one"), callback:
        pass


def test_two_callbacks_at_once(tmp_path: Path, train_step: TrainStep) -> None:
    # given two callbacks around one loop
    one = MemoryCallback(run={"logdir": str(tmp_path), "name": "one"})
    other = MemoryCallback(run={"logdir": str(tmp_path), "name": "other"})

    # when it runs
    with one, other:
        for _ in range(14):
            train_step()
            one.step()
            other.step()

    # then both have watched, and only one of them recorded at a time: the window of the other came a cycle later
    assert one.summary is not None
    assert other.summary is not None
    assert len(one.summary.traces) == len(other.summary.traces) == 1
    assert one.summary.steps == other.summary.steps == 14


def test_start_and_stop_without_a_with_block(logdir: dict[str, Any], train_step: TrainStep) -> None:
    callback = MemoryCallback(run=logdir, profiling={"enabled": False})
    callback.start()
    train_step()
    callback.step()
    callback.stop()
    callback.stop()

    assert callback.summary is not None
    assert callback.summary.steps == 1


@pytest.mark.parametrize("is_block", [True, False])
def test_a_block_records_sigterm_from_its_beginning_and_start_from_the_first_step(
    is_block: bool, logdir: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # given a program with a handler of its own, which goes on
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    ours = signal.getsignal(signal.SIGTERM)
    try:
        # when the signal comes before the first step
        memory = MemoryCallback(run=logdir)
        if is_block:
            with memory:
                signal.raise_signal(signal.SIGTERM)
        else:
            memory.start()
            signal.raise_signal(signal.SIGTERM)
            memory.stop()
        # then both hear it, and what was there is there again
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (
        "SIGTERM after step 0: all records are written; the program handles the signal" in _messages(caplog)
    ) == is_block


def test_a_program_that_forgets_to_stop_keeps_its_files(tmp_path: Path) -> None:
    program = f"""
        from tbmem import MemoryCallback
        memory = MemoryCallback(run={{"logdir": {str(tmp_path)!r}, "name": "run"}})
        memory.start()
        for _ in range(5):
            memory.step()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    log = read_monitor_log(tmp_path / "run/plugins/tbmem/monitor.jsonl")
    assert log.end is not None
    assert log.rows[-1].sample.step == 5
    assert list((tmp_path / "run").glob("*.pt.trace.json.gz"))


class _Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_dataloader_workers(logdir: dict[str, Any], context: str) -> None:
    # given workers that are started inside the loop, windows included
    callback = MemoryCallback(run=logdir, profiling={"wait": 0, "warmup": 1, "active": 2, "repeat": 1})
    loader = DataLoader(_Numbers(), batch_size=4, num_workers=2, multiprocessing_context=context)

    # when it runs
    with callback as memory:
        for batch in loader:
            batch.sum()
            memory.step()

    # then nothing hung, and only this process wrote
    assert callback.summary is not None
    assert callback.summary.steps == 6
    assert len(callback.summary.traces) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_that_leaves_the_block_touches_nothing(logdir: dict[str, Any], tmp_path: Path) -> None:
    callback = MemoryCallback(run=logdir, profiling={"enabled": False})
    with callback as memory:
        memory.step()
        child = os.fork()
        if child == 0:
            memory.step()
            memory.stop()
            os._exit(0 if memory.summary is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        memory.step()

    log = read_monitor_log(tmp_path / "run/plugins/tbmem/monitor.jsonl")
    assert callback.summary is not None
    assert callback.summary.steps == 2
    assert len(log.headers) == 1


def test_sub_folders_for_all_ranks(
    tmp_path: Path, train_step: TrainStep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given rank 1 of 2
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    callback = MemoryCallback(run={"logdir": str(tmp_path), "name": "run", "ranks": "all"})

    # when it runs
    with caplog.at_level(logging.INFO, "tbmem"):
        _run(callback, train_step, 12)

    # then it writes into its own folder, under its own name, and says nothing
    assert callback.summary is not None
    assert all("/run/rank1/" in trace and "_rank1." in trace for trace in callback.summary.traces)
    assert [line for line in _messages(caplog) if "memory" in line] == []


def test_wrong_settings_raise_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="profiling.active must be at least 1"):
        MemoryCallback(profiling={"active": 0})
    with pytest.raises(ConfigError, match="no such config file"):
        MemoryCallback(tmp_path / "nowhere.yaml")

    (tmp_path / "file").touch()
    callback = MemoryCallback(run={"logdir": str(tmp_path / "file")})
    with pytest.raises(RunFolderError, match="cannot write to"):
        callback.start()


def test_watching_nonsense_is_a_warning(logdir: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "tbmem"),
        MemoryCallback(run=logdir, profiling={"repeat": 1, "active": 1, "wait": 0, "warmup": 0}) as memory,
    ):
        memory.watch("not a model")  # type: ignore[arg-type]
        memory.step()

    assert "watch is off: TypeError: watch() takes a torch.nn.Module first, not str" in caplog.text


def test_a_snapshot_by_hand_without_history_says_why(logdir: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("this machine's device keeps memory history")
    with caplog.at_level(logging.INFO, "tbmem"), MemoryCallback("configs/light.yaml", run=logdir) as memory:
        memory.step()
        assert memory.snapshot("here") is None

    assert "no device here keeps memory history" in caplog.text


def test_the_trace_holds_the_profilers_settings(tmp_path: Path, logdir: dict[str, Any], train_step: TrainStep) -> None:
    callback = MemoryCallback(run=logdir, profiling={"wait": 0, "warmup": 0, "active": 1, "repeat": 1})

    _run(callback, train_step, 2)

    (trace,) = (tmp_path / "run").glob("*.pt.trace.json.gz")
    held = json.loads(gzip.decompress(trace.read_bytes()))
    assert (held["profile_memory"], held["with_stack"], held["record_shapes"]) == (1, 1, 1)


def test_a_config_object_and_a_dotlist(tmp_path: Path) -> None:
    config = load_config("configs/light.yaml", [f"run.logdir={tmp_path}"])

    callback = MemoryCallback(config, ["monitor.log_every_n_steps=7"])

    assert callback.config.monitor.log_every_n_steps == 7
    assert not callback.config.profiling.enabled


def test_training_in_another_thread_is_a_warning_not_a_crash(tmp_path: Path) -> None:
    # given a training in a thread that ends before the interpreter does, in what would be a window
    program = f"""
        import threading
        from tbmem import MemoryCallback
        memory = MemoryCallback(run={{"logdir": {str(tmp_path)!r}}}, profiling={{"wait": 0, "warmup": 0}})
        def train():
            memory.start()
            memory.step()
        worker = threading.Thread(target=train)
        worker.start()
        worker.join()
    """

    # when the interpreter ends without stop()
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)

    # then the process ends well, and says what was lost
    assert done.returncode == 0, done.stderr
    assert "windows are recorded in the main thread; training runs in another one" in done.stderr
    assert "ERROR" not in done.stderr


def test_steps_from_another_thread_do_not_touch_the_window(
    logdir: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # given a window of the main thread
    import threading

    schedule = {"wait": 0, "warmup": 0, "active": 1, "repeat": 1}
    with caplog.at_level(logging.WARNING, "tbmem"), MemoryCallback(run=logdir, profiling=schedule) as memory:
        # when another thread steps, then it is left as it is, and written where it was opened
        worker = threading.Thread(target=memory.step)
        worker.start()
        worker.join()
        memory.step()

    assert memory.summary is not None
    assert len(memory.summary.traces) == 1
    assert "step() came from another thread" in caplog.text


def test_an_interrupt_while_writing_leaves_nothing_on(
    logdir: dict[str, Any], train_step: TrainStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given somebody who presses Ctrl-C again while the trace is being collected
    def interrupt(export: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tbmem.runtime.profiling.window.export_to_memory", interrupt)

    # when the window ends, then the interrupt passes, and (the autouse fixture looks) nothing is left on
    with pytest.raises(KeyboardInterrupt):
        _run(MemoryCallback(run=logdir), train_step, 5)


def test_a_start_that_fails_leaves_an_inert_callback(logdir: dict[str, Any]) -> None:
    callback = MemoryCallback(run=logdir, monitor={"devices": "cuda:99"})
    with pytest.raises(ConfigError):
        callback.start()

    assert not callback.is_active
    callback.step()
    callback.stop()
    assert callback.summary is None


def test_everything_off_writes_nothing(tmp_path: Path, train_step: TrainStep) -> None:
    off = {"enabled": False}
    callback = MemoryCallback(run={"logdir": str(tmp_path / "runs")}, monitor=off, profiling=off, snapshot=off)

    _run(callback, train_step, 3)

    assert not (tmp_path / "runs").exists()


def test_a_program_that_changes_its_folder_keeps_its_files(
    tmp_path: Path, train_step: TrainStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a relative logdir
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    # when the loop changes the working directory
    with MemoryCallback(run={"logdir": "runs", "name": "run"}) as memory:
        for _ in range(12):
            train_step()
            monkeypatch.chdir(tmp_path / "elsewhere")
            memory.step()

    # then everything is where it was meant to be
    assert len(list((tmp_path / "runs/run").glob("*.pt.trace.json.gz"))) == 1
    assert memory.summary is not None
    assert memory.summary.problems == ()


def test_files_of_which_a_slow_disk_does_not_say_whether_they_are_there_are_not_gone(
    tmp_path: Path, train_step: TrainStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a disk whose answer does not come in time
    monkeypatch.setattr(FileWriter, "ask", lambda writer, call, deadline: None)

    with MemoryCallback(run={"logdir": str(tmp_path), "name": "run"}, profiling={"repeat": 1}) as memory:
        for _ in range(8):
            train_step()
            memory.step()

    assert memory.summary is not None
    assert memory.summary.problems == ()
    assert len(memory.summary.traces) == 1


def test_a_schedule_that_awaits_where_the_training_goes_on_begins_there(
    logdir: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # given a framework that restores its checkpoint after it has begun
    memory = MemoryCallback(run=logdir)
    with caplog.at_level(logging.INFO, "tbmem"):
        memory.start(awaits_resume=True)
        assert not any("profiler" in line for line in _messages(caplog))

        # when it is known how far the training has come
        memory.resume(12)
        memory.stop()

    # then steps are announced as they are counted
    said = [line for line in _messages(caplog) if line.startswith("profiler")]
    assert said == ["profiler · records steps 16-18", "profiler · step 13 wait"]


def test_without_stop_it_ends_when_it_is_deleted(logdir: dict[str, Any], train_step: TrainStep, tmp_path: Path) -> None:
    # given a notebook's cell that starts a callback, does not stop it, and is run again
    memory = MemoryCallback("light", run=logdir)
    memory.start()
    memory.step()

    # when its variable gets another callback
    memory = MemoryCallback("light", run=logdir)

    # then the first run has ended in order, and no thread is left
    assert read_monitor_log(tmp_path / "run/plugins/tbmem/monitor.jsonl").has_ended
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tbmem")]
    assert memory.summary is None


def test_a_run_lasts_as_long_in_its_log_as_on_the_console(
    tmp_path: Path, train_step: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an end that takes longer than the training: a report of what holds the memory, traces that are read
    def slow(self: MemoryCallback, *arguments: Any) -> None:
        time.sleep(0.5)

    monkeypatch.setattr(MemoryCallback, "_report_end", slow)
    # when
    with MemoryCallback(run={"logdir": str(tmp_path), "name": "r"}, profiling={"enabled": False}) as memory:
        for _ in range(3):
            train_step()
            memory.step()
    # then
    story = tbmem.report(tmp_path / "r").run
    assert memory.summary is not None
    assert story is not None
    assert story.seconds == pytest.approx(memory.summary.seconds, abs=0.1)
