"""`tbmem watch` and `tbmem check` on runs of a real monitor, as a shell sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from tbmem import MemoryMonitor
from tbmem.cli.entry import main as entry
from tbmem.cli.main import app


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of thirty steps that hold what they hold."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    with MemoryMonitor(folder=folder, console=False, log_every_n_steps=1) as monitor:
        for _ in range(30):
            monitor.step()
    return folder


def _call(*arguments: object, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False, env=environment)


def test_watch_once(run: Path) -> None:
    done = _call("watch", run.parent, "--once")

    assert done.exit_code == 0
    assert done.stdout.startswith("mine · ended in order · step 30")
    assert "STABLE" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_watch_as_json(run: Path) -> None:
    (view,) = json.loads(_call("watch", run, "--json").stdout)

    assert (view["run"], view["status"], view["step"]) == ("mine", "ended", 30)
    assert view["ranks"][0]["devices"][0]["verdict"] == "stable"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_watch_on_a_terminal_ends_with_the_run_and_never_loads_torch(run: Path) -> None:
    # given a terminal
    ours, theirs = os.openpty()
    program = (
        "import sys; from tbmem.cli.entry import main\ntry: main()\nfinally: assert 'torch' not in sys.modules, 'torch'"
    )
    command = [sys.executable, "-c", program, "watch", str(run)]

    # when a run is watched that has ended
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as child:
        os.close(theirs)
        _, errors = child.communicate(timeout=60)

    # then it is shown, and that is all
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert child.returncode == 0, errors
    assert "mine" in shown
    assert "STABLE" in shown


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells")
def test_a_run_that_was_killed_has_died_at_once(tmp_path: Path) -> None:
    # given a run that is killed after some steps
    program = """
import os, pathlib, signal, time
from tbmem import MemoryCallback
memory = MemoryCallback(run={"logdir": "runs"}, profiling={"enabled": False})
memory.start()
for _ in range(10):
    memory.step()
while not any(log.stat().st_size for log in pathlib.Path("runs").rglob("monitor.jsonl")):
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False)
    # when
    done = _call("watch", tmp_path / "runs", "--once")
    # then
    assert done.exit_code == 0
    assert "died without an end: killed?" in done.stdout


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["--max-peak", "10TiB"], 0),
        (["--max-peak", "1MiB"], 1),
        (["--no-leak", "--max-growth", "1GiB/step"], 0),
        (["--no-leak", "--max-peak", "1MiB"], 1),
    ],
)
def test_check_tells_by_its_exit_code(limits: list[str], code: int, run: Path) -> None:
    done = _call("check", run, *limits)

    assert done.exit_code == code
    assert ("FAIL" in done.stdout) is bool(code)


def test_check_against_a_baseline(run: Path, tmp_path: Path) -> None:
    # given a baseline that a run has written
    baseline = tmp_path / "baseline.json"
    wrote = _call("check", run, "--baseline", baseline, "--update-baseline")
    assert wrote.exit_code == 0
    assert f"wrote {baseline}: rank 0 " in wrote.stdout

    # then the same run is as good as it, and one of a tenth of it is not
    assert _call("check", run, "--baseline", baseline, "--tolerance", "0%").exit_code == 0
    data = json.loads(baseline.read_text())
    data["peaks"] = {place: peak // 10 for place, peak in data["peaks"].items()}
    baseline.write_text(json.dumps(data))
    assert _call("check", run, "--baseline", baseline).exit_code == 1


def test_check_for_machines(run: Path, tmp_path: Path) -> None:
    done = _call(
        "check", run, "--max-peak", "1MiB", "--junit", tmp_path / "x.xml", environment={"GITHUB_ACTIONS": "true"}
    )
    as_json = _call("check", run, "--max-peak", "1MiB", "--json", "--github")
    view = json.loads(as_json.stdout)

    assert "::error title=tbmem max-peak::" in done.stdout
    assert ElementTree.parse(tmp_path / "x.xml").getroot().get("failures") == "1"
    assert view["holds"] is False
    assert as_json.stderr.startswith("::error title=tbmem max-peak::")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nowhere", "--no-leak"], "nowhere: no such file or folder"),
        (["check", "empty", "--no-leak"], "no run of tbmem"),
        (["check", "text", "--no-leak"], "not a monitor log"),
        (["check", "empty"], "nothing to check"),
        (["check", "RUN", "--max-peak", "10G"], "--max-peak: '10G' is not a size"),
        (["check", "RUN", "--max-peak", "100"], "--max-peak: '100' lacks its unit; write '100 MiB', or '100 B'"),
        (["check", "RUN", "--max-growth", "1/step"], "--max-growth: '1' lacks its unit"),
        (["check", "RUN", "--tolerance", "much"], "'much' is no percentage"),
        (["check", "RUN", "--baseline", "nowhere"], "--update-baseline writes one"),
        (["check", "RUN", "--baseline", "text"], "not a baseline"),
        (["check", "RUN", "--update-baseline"], "needs --baseline"),
        (["watch", "nowhere"], "no such file or folder"),
        (["watch", "empty"], "no run of tbmem"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tbmem", *[str(run) if word == "RUN" else word for word in arguments]])

    with pytest.raises(SystemExit) as ended:
        entry()

    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert message in shown.err
