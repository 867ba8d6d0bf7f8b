"""What the parent makes of the results of a program's processes; the programs here write theirs without a device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from tbmem.api.rehearse import rehearse
from tbmem.errors import UsageError
from tbmem.model.gpus import Gpu, gpu_named
from tbmem.rehearsal import rehearse as rehearsing
from tbmem.rehearsal.environment import Order
from tbmem.rehearsal.rehearse import Program, run
from tests.conftest import PROJECT
from tests.rehearsal.records import GIB, process

WRITES = """
import json, os, sys
order = json.loads(os.environ["TBMEM_REHEARSAL"])
def write(result, rank=0, **values):
    device = {**result["devices"][0], **{key: values.pop(key) for key in list(values) if key in result["devices"][0]}}
    with open(f"{order['results']}/{rank}.json", "w") as file:
        json.dump({**result, "rank": rank, "devices": [device], **values}, file)
"""
RESULT = f"result = {asdict(process())!r}\n"


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs get no simulated GPU, and run in an empty folder."""

    def environment(gpu: Gpu, devices: int, _folder: Path | None) -> dict[str, str]:
        return {**os.environ, "GPUS": str(devices), "BYTES": str(gpu.total)}

    monkeypatch.setattr(rehearsing, "rehearsal_environment", environment)
    monkeypatch.chdir(tmp_path)


def _script(code: str) -> str:
    Path("train.py").write_text(WRITES + RESULT + textwrap.dedent(code))
    return "train.py"


def test_a_program_that_fits() -> None:
    result = rehearse(_script("write(result)"), "--lr", "3", gpu="a100-40gb")

    assert result.fits
    assert (result.program, result.gpu, result.needed) == ("train.py --lr 3", "a100-40gb", None)
    assert result.headroom == 29 * GIB
    assert result.seconds > 0


def test_each_rank_has_a_result() -> None:
    result = rehearse(_script("for rank in (2, 0, 1): write(result, rank, reserved=(rank + 1) << 30)"), gpus=3)

    assert [each.rank for each in result.processes] == [0, 1, 2]
    assert result.worst[0].rank == 2


def test_what_a_process_is_asked_for() -> None:
    code = """
    write(result, exception=json.dumps([order, os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["GPUS"]]))
    """

    result = rehearse(_script(code), steps=5, world_size=16, rank=9, logdir="logs")

    order, *variables = json.loads(result.processes[0].exception or "")
    order = Order(**order)
    assert (order.steps, order.world_size, order.rank, order.is_recorded) == (5, 16, 9, True)
    assert Path(order.logdir) == Path("logs").absolute()
    assert variables == ["9", "16", "8"]


def test_memory_that_ran_out_is_tried_again_with_more() -> None:
    code = f"""
    is_small = int(os.environ["BYTES"]) < 50 << 30
    assert is_small == order["is_recorded"]
    write(result, out_of_memory=is_small, reserved=(39 if is_small else 51) << 30, outside={GIB})
    sys.exit(is_small)
    """

    result = rehearse(_script(code), gpu="a100-40gb")

    assert not result.fits
    assert result.needed == 52 * GIB
    assert result.headroom == -12 * GIB


def test_what_other_processes_of_a_device_take_is_not_left() -> None:
    result = rehearse(_script(f"write(result, reserved={10 * GIB}, others={20 * GIB})"), gpu="a100-40gb")

    assert result.headroom == 9 * GIB


def test_a_launcher_that_waits_for_workers_that_were_ended_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a program with a result that does nothing more
    monkeypatch.setattr(rehearsing, "_STILL_SECONDS", 2.0)
    began = time.monotonic()

    result = rehearse(_script("write(result); import time; time.sleep(100)"))

    assert result.fits
    assert time.monotonic() - began < 50


def test_a_program_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # given one that has a result and computes
    monkeypatch.setattr(rehearsing, "_STILL_SECONDS", 1.0)
    code = """
    import time
    write(result)
    end = time.monotonic() + 6
    while time.monotonic() < end: pass
    write(result, 1)
    """

    assert len(rehearse(_script(code)).processes) == 2


def test_memory_that_grows_without_end_has_no_figure() -> None:
    result = rehearse(_script("write(result, out_of_memory=True); sys.exit(1)"))

    assert (result.fits, result.needed) == (False, None)


def test_trials_are_not_run_again() -> None:
    words = [_script("write(result, out_of_memory=True); open('runs.txt', 'a').write('x')")]

    run(Program(words, gpu_named("t4"), is_recorded=False))

    assert Path("runs.txt").read_text() == "x"


def test_the_report_of_the_process_that_ran_out_of_memory_is_shown() -> None:
    Path("worker.oom.txt").write_text("step 1 ran out of memory\n")

    result = rehearse(_script(f"write(result, out_of_memory=True, folder={os.getcwd()!r})"))

    assert result.out_of_memory_report == "step 1 ran out of memory"


@pytest.mark.parametrize(
    ("code", "values", "note"),
    [
        ("write(result, steps=0)", {}, "no optimizer stepped"),
        ("write(result, steps=2)", {}, "ended by itself after 2 optimizer steps"),
        ("write(result, retries=1)", {}, "give its cache back"),
        (
            "write(result, first_read={'file': 'a.py', 'line': 7, 'code': 'x.item()'})",
            {},
            "a.py:7 was the first line to read such a value, as zero",
        ),
        ("write(result, snapshots=['nowhere.pickle'])", {}, "the recording is not read"),
    ],
)
def test_notes(code: str, values: dict[str, Any], note: str) -> None:
    result = rehearse(_script(code), **values)

    assert any(note in each for each in result.notes)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit(3)", "failed by itself, with exit code 3"),
        (
            "write(result, first_read={'file': 'a.py', 'line': 7, 'code': ''}); sys.exit(1)",
            "it may be for this: .* a.py:7",
        ),
        ("pass", "ended without using a GPU"),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "killed, as the kernel does"),
    ],
)
def test_programs_that_fail(code: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rehearse(_script(code))


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (("nowhere.py",), {}, "nowhere.py: no such script"),
        (("torchrum", "train.py"), {}, "torchrum: no such script or launcher"),
        (("train.py",), {"world_size": 4, "rank": 4}, "the ranks of 4 are 0 to 3"),
        (("train.py",), {"gpu": "abacus"}, "abacus"),
    ],
)
def test_wrong_input(words: tuple[str, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rehearse(*words, **options)


def test_modules_and_launchers() -> None:
    gpu = gpu_named("t4")
    beside = Path(sys.executable).parent

    assert Program(["-m", "package.train", "x"], gpu).command == [sys.executable, "-m", "package.train", "x"]
    assert Program(["python", "train.py"], gpu).command == [str(beside / "python"), "train.py"]
    assert Program([_script(""), "x"], gpu).command == [sys.executable, "train.py", "x"]
    Path("train.py").chmod(0o755)
    assert Program(["train.py"], gpu).command == [sys.executable, "train.py"]


_WAITS = """
import sys
from pathlib import Path
import tbmem
from tbmem.rehearsal import rehearse as rehearsing
import os
rehearsing.rehearsal_environment = lambda *_: dict(os.environ)
tbmem.rehearse(sys.argv[1])
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_the_program_ends_with_its_parent(sent: signal.Signals) -> None:
    # given a program that runs on
    script = _script("import time\nprint('up', flush=True)\ntime.sleep(60)")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", _WAITS, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        (child,) = psutil.Process(parent.pid).children()

        # when its parent alone gets a signal
        parent.send_signal(sent)
        parent.wait(timeout=30)

        # then it ends as well
        deadline = time.monotonic() + 30
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
