"""``tbmem.show``: the Memory tab's page in a frame."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest

import tbmem
from tbmem.errors import FileFormatError, MissingDependencyError, UsageError
from tbmem.notebook import show as module
from tbmem.notebook.show import frame, path_of, show
from tests.notebook.conftest import Shell
from tests.offline.snapshots import write_snapshot


@pytest.fixture(autouse=True)
def running(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(module, "running_shell", lambda: shell)
    return shell


def answers_in(html: str) -> dict[str, object]:
    (page,) = re.findall(r'srcdoc="([^"]*)"', html)
    (data,) = re.findall(r'id="tbmem-data">(.*?)</script>', unescape(page), flags=re.DOTALL)
    found: dict[str, object] = json.loads(data)
    return found


def test_a_recording(shell: Shell, tmp_path: Path) -> None:
    write_snapshot(tmp_path / "a.snapshot.pickle", [64 << 20])

    show(tmp_path / "a.snapshot.pickle")

    ((html, text, is_update),) = shell.shown
    assert "timeline" in str(answers_in(html)["views"])
    assert html.count("<") == 2  # nothing of the page is outside of the frame
    assert text == f"Memory tab of {tmp_path / 'a.snapshot.pickle'}: a notebook shows it"
    assert not is_update


def test_a_log_folder_has_all_its_runs(shell: Shell, tmp_path: Path) -> None:
    # given a log folder with two runs
    summaries = []
    for name in ("a", "b"):
        with tbmem.MemoryCallback("light", run={"logdir": str(tmp_path), "name": name}) as memory:
            memory.step()
        summaries.append(memory.summary)

    # when it, one of its runs, and the summary and the callback of the other are shown
    for run in (tmp_path, tmp_path / "a", summaries[1], memory):
        show(run)

    # then each page has its runs
    names = [
        re.findall(r'"run": "(\w)", "status"', json.dumps(answers_in(html)["index"])) for html, _, _ in shell.shown
    ]
    assert [sorted(set(found)) for found in names] == [["a", "b"], ["a"], ["b"], ["b"]]


def test_a_frame_runs_scripts_and_reaches_nothing_else() -> None:
    html = frame('<p title="x">a & b</p>', "<a> & b", 300, "dark")

    assert 'srcdoc="&lt;p title=&quot;x&quot;&gt;a &amp; b&lt;/p&gt;"' in html
    assert 'title="Memory tab of &lt;a&gt; &amp; b"' in html
    assert 'sandbox="allow-scripts allow-downloads"' in html
    assert "height:300px" in html
    assert "color-scheme:dark" in html


def test_a_frameworks_callback_is_its_run() -> None:
    # given an adapter, which has a session with the callback of its run
    adapter = SimpleNamespace(session=SimpleNamespace(memory=SimpleNamespace(folder=Path("runs/a"))))

    assert path_of(adapter) == "runs/a"


def test_what_cannot_be_shown_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file or folder"):
        show(tmp_path / "nope")
    with pytest.raises(UsageError, match="a path, a summary or a callback that has started is needed, not int"):
        show(3)
    with pytest.raises(UsageError, match="not MemoryCallback"):
        show(tbmem.MemoryCallback())
    with pytest.raises(UsageError, match="write one of auto, light, dark"):
        show(tmp_path, theme="blue")


def test_without_ipython_it_says_what_to_install() -> None:
    # given a process in which IPython cannot be imported
    program = "import sys; sys.modules['IPython'] = None; import tbmem; tbmem.show('x')"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    message = "tbmem.show needs IPython (tbmem's extra notebook): pip install ipython"
    assert done.stderr.splitlines()[-1] == f"tbmem.errors.{MissingDependencyError.__name__}: {message}"


def test_outside_of_a_notebook_it_names_the_command() -> None:
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", "import tbmem; tbmem.show('x')"], capture_output=True, text=True, timeout=60
    )

    assert done.stderr.splitlines()[-1].endswith(
        "no notebook is running here; tbmem report RUN --html FILE writes the same page"
    )
