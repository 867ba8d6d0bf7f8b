"""What the files of a run hold of the machine, as docs/privacy.md states it; what `output.redact` leaves out."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import PROJECT

HOST, USER, SECRET, OF_THE_ENVIRONMENT = "node7-in-acme", "ada_lovelace", "hunter2-token-XY", "of-the-environment-Z"

PROGRAM = """
import pathlib, socket, sys
socket.gethostname = lambda: "node7-in-acme"
import torch, tbmem
from tbmem.runtime.metric_sinks import MetricSink

class ToFile(MetricSink):
    name = "to_file"
    def _write(self, what):
        with open("sink.txt", "a") as file:
            print(what, file=file)
    log = alert = summarize = _write

def train(token):
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = {}
    settings = ["patterns.patience=20", "evidence.confirm_after=10", "profiling.repeat=1", *sys.argv[2:]]
    logdir = str(pathlib.Path.cwd() / "runs")
    heard = lambda finding: pathlib.Path("finding.txt").open("a").write(repr(finding))
    run = {"logdir": logdir, "name": "run"}
    with tbmem.MemoryCallback(None, settings, run=run, sinks=ToFile(), on_finding=heard) as memory:
        memory.watch(model, optimizer)
        for _ in range(90):
            with torch.profiler.record_function(f"load {token}"):
                batch = torch.randn(32, 64)
            model(batch).sum().backward()
            optimizer.step()
            kept.setdefault(token, []).append(torch.randn(256, 256))
            memory.step()
        raise MemoryError(f"no room in {logdir} on {socket.gethostname()} for {token}")

train(sys.argv[1].partition("=")[2])
"""


def _run(tmp_path: Path, *settings: str) -> dict[str, str]:
    """Run the program in a home folder and report on it; returns the content of all files and of the console."""
    folder = tmp_path / USER / "project"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    environment = {
        **{**os.environ, "HOME": str(folder.parent), "USER": USER, "LOGNAME": USER, "OMP_NUM_THREADS": "1"},
        **{"PYTHONPATH": str(PROJECT), "API_KEY": OF_THE_ENVIRONMENT},
    }
    environment.pop("PWD", None)
    command = [sys.executable, str(folder / "train.py"), f"--token={SECRET}", *settings]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert "MemoryError" in ran.stderr
    report = [sys.executable, "-m", "tbmem", "report", str(folder / "runs" / "run"), "--out", "reports"]
    subprocess.run(report, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    files = {str(path.relative_to(folder)): _text(path) for path in folder.rglob("*") if path.is_file()}
    del files["train.py"]
    # the last lines are Python's own traceback
    return {**files, "console": ran.stderr.partition("Traceback")[0], "names": "\n".join(files)}


def _text(path: Path) -> str:
    data = path.read_bytes()
    if path.name.endswith(".gz"):
        data = gzip.decompress(data)
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            data = b"".join(map(archive.read, archive.namelist())).replace(b"\0", b"")
    return data.decode("utf-8", "replace")


def _files_with(word: str, files: dict[str, str]) -> set[str]:
    return {Path(name).name.partition(".")[0] for name, text in files.items() if word in text}


@pytest.mark.slow
def test_what_a_run_holds_of_the_machine_is_what_the_page_says(tmp_path: Path) -> None:
    # when a program leaks, runs out of memory, and is reported on
    files = _run(tmp_path)

    # then files hold the host's name, the folders, and keys of dictionaries
    trace = f"{HOST}_rank0"
    assert {"monitor", "names", trace, "README", "run"} <= _files_with(HOST, files)
    assert {"monitor", "evidence-1", "README", "run", "console"} <= _files_with(str(tmp_path), files)
    assert {"monitor", "evidence-1", "finding", trace, "console"} <= _files_with(SECRET, files)

    # but no file the environment, the command line or the values of arguments as such
    assert not _files_with(OF_THE_ENVIRONMENT, files)
    assert not _files_with("--token", files)


@pytest.mark.slow
def test_redacted_files_hold_none_of_it(tmp_path: Path) -> None:
    # when
    files = _run(tmp_path, "output.redact=true")

    # then
    for word in (HOST, HOST.partition("-")[0], USER, str(tmp_path), SECRET, OF_THE_ENVIRONMENT):
        assert _files_with(word, files) == set(), word

    # and they are of use: lines of source and relative files remain
    assert "held by list kept[…] in train() at train.py:" in files["console"]
    assert '"file":"./train.py"' in files["runs/run/plugins/tbmem/monitor.jsonl"]
    assert "kept.setdefault(token, []).append" in files["runs/run/plugins/tbmem/evidence-1.json"]
    assert {name for name in files if name.endswith("host_rank0.oom.txt")}
