"""`tbmem run`: a program behaves as under plain Python, and its training is watched."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import zipapp
import zipfile
from pathlib import Path

import pytest

from tbmem.model.address_book import AddressBook
from tbmem.model.monitor_log import read_monitor_log
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

TRAIN = """
import sys, torch
def train(steps):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def _write(path: Path, code: str) -> str:
    path.write_text(TRAIN + textwrap.dedent(code))
    return path.name


def _python(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder, input=given)


def _run(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return _python(folder, "-m", "tbmem", "run", "profiling.enabled=false", *words, given=given)


def _without_our_lines(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not re.match(r"\d\d:\d\d:\d\d tbmem ", line))


def test_a_callback_of_the_script_takes_the_place(tmp_path: Path) -> None:
    # given a script that is watched already
    code = """
    from tbmem import MemoryCallback
    with MemoryCallback("light", run={"logdir": "own"}, output={"console": False}) as memory:
        train(5)
        memory.step()
    """
    script = _write(tmp_path / "train.py", code)
    # when
    done = _run(tmp_path, "run.logdir=ours", "--", script)
    # then there is one run, and one line that says whose
    assert done.returncode == 0
    assert len(list((tmp_path / "own").iterdir())) == 1
    assert list((tmp_path / "ours").iterdir()) == []
    assert done.stderr.count("the program starts a callback of its own") == 1
    assert "steps in" not in done.stderr
    assert "SHORT RUN" not in done.stderr


def test_both_models_of_a_gan_are_named(tmp_path: Path) -> None:
    # given a script with two models, each with an optimizer
    code = """
    G, D = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    for_g, for_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
    for _ in range(8):
        D(G(torch.randn(2, 4)).detach()).sum().backward()
        for_d.step()
        D(G(torch.randn(2, 4))).sum().backward()
        for_g.step()
    """
    script = _write(tmp_path / "train.py", code)
    # when
    done = _python(
        tmp_path, "-m", "tbmem", "run", "run.logdir=runs", "run.name=gan", "profiling.repeat=1", "--", script
    )
    # then
    assert done.returncode == 0
    (file,) = (tmp_path / "runs/gan").glob("*.addresses.npz")
    assert {"G.weight", "G.bias", "D.weight", "D.bias"} <= set(AddressBook.load(file).names)


def test_a_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    # given a script that prints all that it can see of how it was started, and ends with a code of its own
    code = """
    import os, pickle, __main__
    class Kept: pass
    print(sys.argv, __name__, __file__, __spec__, __package__, type(__loader__).__name__, sys.path[0])
    print(sys.stdin.read(), pickle.loads(pickle.dumps(Kept())).__class__ is Kept, __main__.Kept is Kept)
    train(5)
    sys.exit(3)
    """
    script = _write(tmp_path / "train.py", code)

    # when it runs plain and under tbmem
    plain = _python(tmp_path, script, "--lr", "3", given="hello")
    under = _run(tmp_path, "--", script, "--lr", "3", given="hello")

    # then nothing differs, and five steps were seen
    assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout) == (3, plain.stdout)
    assert _without_our_lines(under.stderr) == plain.stderr
    (log,) = tmp_path.glob("runs/*/plugins/tbmem/monitor.jsonl")
    assert read_monitor_log(log).rows[-1].sample.step == 5


def test_a_module_sees_what_python_would_show_it(tmp_path: Path) -> None:
    # given a package that is run, and imports its neighbour
    (tmp_path / "package").mkdir()
    _write(tmp_path / "package/__init__.py", "")
    (tmp_path / "package/__main__.py").write_text(
        "import sys\nfrom . import train\ntrain(5)\nprint(sys.argv, __name__, __file__, __spec__.name, __package__)\n"
    )

    plain = _python(tmp_path, "-m", "package", "x")
    under = _run(tmp_path, "-m", "package", "x")

    assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout)


_ALL_OF_IT = """
import sys, neighbour
shown = {name: str(value).split(" at 0x")[0] for name, value in sorted(globals().items()) if name[:2] == "__"}
shown.update(builtins="", argv=sys.argv, place=sys.path[0], own=sys.modules["__main__"].__dict__ is globals())
del shown["__builtins__"]
print(shown, neighbour.__file__, __spec__ and (__spec__.name, __spec__.parent, __spec__.origin))
"""


@pytest.mark.parametrize("words", [["folder/"], ["./folder"], ["app.pyz"], ["./folder/__main__.py"], ["-"]])
def test_whatever_python_runs_sees_the_same(words: list[str], tmp_path: Path) -> None:
    # given a folder with a program, the same as an archive, and the same on standard input
    for folder in (tmp_path, tmp_path / "folder"):
        folder.mkdir(exist_ok=True)
        (folder / "neighbour.py").touch()
        (folder / "__main__.py").write_text(_ALL_OF_IT)
    zipapp.create_archive(tmp_path / "folder", tmp_path / "app.pyz")
    given = _ALL_OF_IT if words == ["-"] else ""

    plain = _python(tmp_path, *words, "x", given=given)
    under = _run(tmp_path, "output.console=false", "--", *words, "x", given=given)

    assert plain.returncode == 0, plain.stderr
    assert (under.returncode, under.stdout) == (0, plain.stdout)


def test_a_safe_path_stays_safe(tmp_path: Path) -> None:
    # given Python was told not to import from the working directory
    script = _write(tmp_path / "train.py", "print(sys.path[0])")
    command = [sys.executable, "-m", "tbmem", "run", "profiling.enabled=false", "--"]
    place = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONSAFEPATH": "1"}

    done = [
        subprocess.run(words, capture_output=True, text=True, timeout=240, cwd=tmp_path, env=place)
        for words in ([sys.executable, script], [*command, script], [*command, "-m", "train"])
    ]

    assert [each.returncode for each in done] == [0, 0, 2 if sys.version_info >= (3, 11) else 0]
    assert done[0].stdout == done[1].stdout


@pytest.mark.parametrize(
    "ending", ["train(2); {}['mine']", "raise KeyboardInterrupt", "sys.exit('a word')", "a syntax"]
)
def test_an_exception_looks_as_under_python(ending: str, tmp_path: Path) -> None:
    script = _write(tmp_path / "train.py", ending)

    plain = _python(tmp_path, script)
    under = _run(tmp_path, script)

    assert (under.returncode, _without_our_lines(under.stderr)) == (plain.returncode, plain.stderr)
    assert plain.returncode != 0


@pytest.mark.parametrize(
    ("before", "steps"), [("train(3); print('trained', flush=True)", 3), ("print('loading', flush=True)", 0)]
)
def test_a_signal_ends_it_as_it_would_python(tmp_path: Path, before: str, steps: int) -> None:
    # given a program that has trained, and one that still loads its data
    script = _write(tmp_path / "train.py", f"{before}; import time; time.sleep(100)")
    command = [sys.executable, "-m", "tbmem", "run", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.3)  # the live log is written ten times a second
        # when
        child.send_signal(signal.SIGTERM)
        try:
            said = child.communicate(timeout=60)[1].decode()
        finally:
            child.kill()
    # then
    assert child.returncode == -signal.SIGTERM
    assert f"SIGTERM after step {steps}: all records are written; the run ends here" in said
    (log,) = tmp_path.glob("runs/*/plugins/tbmem/monitor.jsonl")
    assert read_monitor_log(log).end is None


def test_workers_of_both_kinds(tmp_path: Path) -> None:
    # given a script whose loader starts workers, once by fork and once by spawn
    code = """
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): return torch.randn(4)
    def main():
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for kind in ("fork", "spawn"):
            for batch in torch.utils.data.DataLoader(Rows(), 2, num_workers=2, multiprocessing_context=kind):
                model(batch).sum().backward()
                optimizer.step()
    if __name__ == "__main__": main()
    """
    script = _write(tmp_path / "train.py", code)

    done = _python(tmp_path, "-m", "tbmem", "run", "--", script)

    assert done.returncode == 0, done.stderr
    assert "8 steps" in done.stderr


def test_batches_that_accelerate_accumulates_are_one_step(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install --group frameworks")
    # given 14 batches of which each four are a step, and the last two
    code = """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = torch.nn.Linear(4, 4)
    loader = torch.utils.data.DataLoader(torch.randn(14, 4))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).sum())
            optimizer.step()
            optimizer.zero_grad()
    """
    script = _write(tmp_path / "train.py", code)

    done = subprocess.run(
        [sys.executable, "-m", "tbmem", "run", "profiling.enabled=false", script],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert "4 steps in" in done.stderr


def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    script = _write(tmp_path / "train.py", "import os; train(5); print(os.environ['RANK'])")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, "-m", "tbmem", "run", "run.ranks=all", "--", script]

    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/rank[01]/plugins/tbmem/monitor.jsonl"))) == 2


def test_a_script_that_never_trains_says_so(tmp_path: Path) -> None:
    script = _write(tmp_path / "train.py", "")

    done = _run(tmp_path, script)

    assert done.returncode == 0
    assert "no training step was seen" in done.stderr


def test_wrong_arguments_of_the_program_are_its_own_matter(tmp_path: Path) -> None:
    script = _write(tmp_path / "train.py", "import argparse; argparse.ArgumentParser().parse_args()")

    done = _run(tmp_path, script, "--nope")

    assert (done.returncode, list((tmp_path / "runs").glob("*"))) == (2, [])
    assert done.stderr.splitlines()[-1] == "train.py: error: unrecognized arguments: --nope"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "nowhere.py: no such script"),
        (["."], "a folder without __main__.py"),
        (["-m", "nowhere.train"], "nowhere.train: no module of this name"),
        (["--step-on", "0", "x.py"], "--step-on '0': write first, each, 2"),
        (["--", "-c", "print()"], "only a script in a file can be run"),
        (["empty.pyz"], "an archive without __main__.py"),
        (["-m"], "-m needs a module's name"),
        ([], "no script to run: tbmem run"),
        (["profiling.actve=3", "x.py"], "did you mean profiling.active?"),
        (["--logdir", "a-file/x", "x.py"], "cannot write to"),
        (["--logdir=a-file/x", "x.py"], "cannot write to"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "x.py").touch()
    with zipfile.ZipFile(tmp_path / "empty.pyz", "w") as archive:
        archive.writestr("other.py", "")

    done = subprocess.run(
        [sys.executable, "-m", "tbmem", "run", *words], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("tbmem run: ")
    assert message in done.stderr


def test_switched_off_it_is_plain_python(tmp_path: Path) -> None:
    code = "train(2); from torch.optim import optimizer as o; print(len(o._global_optimizer_post_hooks))"
    script = _write(tmp_path / "train.py", code)

    done = _run(tmp_path, "enabled=false", script)

    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert not (tmp_path / "runs").exists()


def test_an_evaluation_after_training_counts_in_the_peak(tmp_path: Path) -> None:
    # given 240 MB that are needed once the last step has ended
    script = _write(tmp_path / "evaluated.py", "train(40)\nprint(float(torch.ones(60_000_000).sum()))")
    # when
    done = _run(tmp_path, "--", script)
    # then
    (peak,) = re.findall(r"resident peak CPU: (\S+) MiB .* after step 40", done.stderr)
    (logs,) = tmp_path.rglob("monitor.jsonl")
    rows = read_monitor_log(logs).rows
    assert float(peak) * 2**20 > max(row.highest or 0 for row in rows if row.count) + 200e6
    checked = _python(tmp_path, "-m", "tbmem", "check", str(logs.parents[2]), "--max-peak", "300MiB")
    assert "after step 40" in checked.stdout
    assert checked.returncode == 1


_SPIKE = """
import time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def draw(count):
    return [torch.randn(16 << 20) for _ in range(count)]
for step in range(1, 31):
    if step == 5:
        tensors = draw({count})
        time.sleep({seconds})
        del tensors
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seconds", "limit"), [(4, 0, "64 MiB"), (4, 0.5, "8 MiB")])
def test_a_spike_in_a_recorded_step_is_told(count: int, seconds: float, limit: str, tmp_path: Path) -> None:
    # given: 256 MiB in a step that a window records, or leaves because it is far larger than records may be
    script = _write(tmp_path / "spike.py", _SPIKE.format(count=count, seconds=seconds))
    # when
    done = _run(tmp_path, "profiling.enabled=true", f"profiling.max_records={limit}", "--", script)
    # then
    verdict = next(line for line in done.stderr.splitlines() if "verdict" in line)
    assert "SPIKE · step 5 took +" in verdict
    if seconds:
        assert "in step 5, of this tbmem" in done.stderr  # the run's peak, which is the program's
    else:
        assert " · beyond what its window's other steps held: 256.00 MiB by spike.py:" in verdict
