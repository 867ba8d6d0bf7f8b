"""A torch profiler of the program's own beside tbmem's: the program goes on and has its trace.

Each case runs in a process of its own: what is tested for is a segmentation fault.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[[str], str]

pytestmark = [pytest.mark.torch_versions, pytest.mark.slow]

TRAINING = """
import json, sys, threading, torch, tbmem
from torch.profiler import profile, schedule

folder = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())

def train():
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()

def check(mine):
    names = {event.key for event in mine.key_averages()}
    assert "aten::addmm" in names, names
    mine.export_chrome_trace(folder + "/mine.json")
    assert any(event.get("name") == "aten::addmm" for event in json.load(open(folder + "/mine.json"))["traceEvents"])
    print("MINE IS WHOLE")

def run(before=lambda step: None, after=lambda step: None, steps=20, **sections):
    sections = {"profiling": {"repeat": 2}, **sections}
    with tbmem.MemoryCallback(run={"logdir": folder, "name": "run"}, **sections) as memory:
        for step in range(1, steps + 1):
            before(step)
            train()
            after(step)
            memory.step()
"""
AROUND = """
mine = {make}
run(lambda step: step == {first} and mine.__enter__(), lambda step: step == {last} and mine.__exit__(None, None, None))
check(mine)
"""
PLAIN, STACKS, OLD = (
    "profile(profile_memory=True)",
    "profile(with_stack=True, record_shapes=True)",
    "torch.autograd.profiler.profile()",
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(program: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(TRAINING + program + '\nprint("THE END")\n')
        ended = subprocess.run(
            [sys.executable, "-X", "faulthandler", str(path), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=280,
            cwd=Path(__file__).parents[3],
        )
        output = ended.stdout + ended.stderr
        assert ended.returncode == 0, output
        assert "THE END" in output
        assert "Traceback" not in output, output
        return output

    return run


def _windows(folder: Path) -> int:
    return len(list(folder.rglob("*.pt.trace.json.gz")))


@pytest.mark.parametrize(
    ("make", "first", "last", "windows", "said"),
    [
        (PLAIN, 5, 5, 2, "at step 5; window 1 ends after step 4"),
        (STACKS, 5, 5, 2, "at step 5; window 1 ends after step 4"),
        (OLD, 5, 5, 2, "at step 5; window 1 ends after step 4"),
        (PLAIN, 3, 3, 2, "at step 3; window 1 is postponed by 6 steps"),  # in the warm-up
        (PLAIN, 4, 4, 2, "at step 4; window 1 is postponed by 6 steps"),
        (PLAIN, 1, 5, 2, "running at step 2; window 1 is postponed by 6 steps"),  # begins before, ends within
        (STACKS, 6, 8, 2, "at step 6; window 1 ends after step 5"),  # begins within, ends in the next warm-up
    ],
)
def test_the_program_profiles_some_steps(
    run: Run, tmp_path: Path, make: str, first: int, last: int, windows: int, said: str
) -> None:
    # when the program profiles its own steps under the default configuration
    output = run(AROUND.format(make=make, first=first, last=last))

    # then it goes on and has its trace, tbmem says in one line what came of its window, and has both of its own
    assert "MINE IS WHOLE" in output
    assert output.count("torch profiler") == (2 if last == 8 else 1)  # another line for the window at step 8
    assert said in output
    assert _windows(tmp_path) == windows


def test_a_profiler_with_a_schedule_of_its_own(run: Run, tmp_path: Path) -> None:
    # given a schedule whose warm-up begins inside of tbmem's window
    output = run("""
mine = profile(schedule=schedule(wait=4, warmup=1, active=2, repeat=1))
with mine:
    run(after=lambda step: mine.step())
check(mine)
""")

    assert "MINE IS WHOLE" in output
    assert "window 1 is postponed by 6 steps" in output
    assert _windows(tmp_path) == 2


def test_a_profiler_in_another_thread_waits_for_the_step_to_end(run: Run, tmp_path: Path) -> None:
    output = run("""
def work():
    with profile() as mine:
        model(torch.randn(8, 16)).sum()
    check(mine)

def begin(step):
    if step == 5:
        thread.start()

def end(step):
    import time
    time.sleep(0.3 * (step == 5))
    if step == 7:
        thread.join()

thread = threading.Thread(target=work)
run(begin, end)
""")

    assert "MINE IS WHOLE" in output
    assert "window 1 ends after step 5" in output


def test_a_profiler_in_a_thread_that_the_step_waits_for_stays_empty(run: Run, tmp_path: Path) -> None:
    output = run("""
import tbmem.sources.torch_state.profiler_state as others
others._LONGEST_WAIT = 0.2

def work():
    with profile() as mine:
        model(torch.randn(8, 16)).sum()
    assert not mine.key_averages()
    mine.export_chrome_trace(folder + "/mine.json")
    with profile() as mine:  # the window is open still
        pass

def begin(step):
    if step == 5:
        thread.start()
        thread.join()

thread = threading.Thread(target=work)
run(begin)
with profile() as mine:
    train()
check(mine)
""")

    assert "MINE IS WHOLE" in output
    assert "the program's stays empty" in output


def test_a_profiler_in_a_backward_hook_stays_empty(run: Run, tmp_path: Path) -> None:
    output = run("""
def hook(gradient):
    with profile() as mine:
        torch.ones(3) + 1
    mine.key_averages()

def begin(step):
    global handle
    if step == 5:
        handle = model[0].weight.register_hook(hook)
    if step == 6:
        handle.remove()

run(begin)
with profile() as mine:
    train()
check(mine)
""")

    assert "MINE IS WHOLE" in output
    assert "the program's stays empty" in output
    assert _windows(tmp_path) == 2


def test_a_profiler_inside_of_record(run: Run, tmp_path: Path) -> None:
    output = run("""
with tbmem.record("block", logdir=folder) as recording:
    train()
    with profile() as mine:
        train()
    check(mine)
assert recording.files
with tbmem.record("again", logdir=folder) as later:
    train()
assert later.files
""")

    assert "MINE IS WHOLE" in output
    assert "the program starts a torch profiler of its own" in output


@pytest.mark.parametrize("inside", [True, False])
def test_births_give_way_too(run: Run, inside: bool) -> None:
    # given births that are watched, and a profiler that begins in a watched step and ends in it or later
    output = run(f"""
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
births = ProfilerSurvivors()
births.begin(1)
train()
births.mark(1)
train()
births.mark(2)
mine = profile()
mine.start()
train()
if {inside}:
    mine.stop()
births.mark(3)
assert births.is_full
train()
report = births.finish()
assert "another profiler was started while survivors were recorded" in report.notes, report.notes
if not {inside}:
    mine.stop()
check(mine)
assert not torch._C._autograd._profiler_enabled()
run()
""")

    assert "MINE IS WHOLE" in output


def test_under_tbmem_run(tmp_path: Path) -> None:
    # given an unmodified script with a profiler of its own around some steps
    program = tmp_path / "program.py"
    program.write_text(
        TRAINING
        + """
for step in range(1, 15):
    if step == 5:
        mine = profile().__enter__()
    train()
    if step == 5:
        mine.__exit__(None, None, None)
        check(mine)
print("THE END")
"""
    )

    # when
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tbmem", "run", f"run.logdir={tmp_path}", "profiling.repeat=2"),
            *("--", str(program), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=280,
    )

    # then
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    assert "MINE IS WHOLE" in output
    assert "THE END" in output
    assert _windows(tmp_path) == 2
