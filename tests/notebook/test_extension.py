"""``%load_ext tbmem`` and ``%%tbmem`` in a real kernel."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebook.kernels import THREADS, TRAINING, Cell, run_notebook

pytestmark = pytest.mark.slow

WATCHED = "%%tbmem -c light --name run --logdir logs monitor.log_every_n_steps=5\ntrain(40)\n'value'"
OWN = """%%tbmem --logdir logs
from tbmem import MemoryCallback
with MemoryCallback("light", run={"logdir": "logs", "name": "own"}, output={"console": False}) as memory:
    train(7, lambda step: memory.step())"""
NOT_STOPPED = """other = MemoryCallback("light", run={"logdir": "logs"}, output={"console": False})
other.start()
"""
CELLS = {
    "load": "%load_ext tbmem\nimport threading, time, torch" + TRAINING,
    "watched": WATCHED,
    "again": WATCHED,
    "keeps": "%%tbmem --logdir logs\nkept = [torch.zeros(1 << 18) for _ in range(8)]",
    "adds": "%%tbmem --logdir logs\nadded = []\ndef add():\n    added.append(torch.zeros(1 << 18))\nadd()",
    "own": OWN,
    "fails": "%%tbmem --logdir logs --name fails\ntrain(20, lambda step: 1 / (9 - step))",
    "no step": "%%tbmem --logdir logs\nraise ValueError('x')",
    "with time": "%%tbmem --no-chart --logdir logs\n%%time\ntrain(3)",
    "awaits": "%%tbmem --logdir logs\nimport asyncio\nawait asyncio.sleep(0)\n4",
    "line": "first = 1\n%tbmem --logdir logs --name line\ntrain(3)",
    "option": "%%tbmem --bogus\n1",
    "quote": "%%tbmem --name 'a\n1",
    "preset": "%%tbmem -c nope\n1",
    "key": "%%tbmem monitor.devise=2\n1",
    "word": "%%tbmem train.py\n1",
    "missing": "import tbmem\ntbmem.show('missing')",
    "off": "%%tbmem enabled=false\n3",
    "summary": "memory.summary",
    "findings": "memory.summary.verdicts",
    "by a program": "get_ipython().run_cell_magic('tbmem', '--no-chart --logdir logs --name api', 'train(3)')",
    "not stopped": NOT_STOPPED,
    "not stopped again": NOT_STOPPED + THREADS,
    "stop": "other.stop()\n" + THREADS,
    "unload": "%unload_ext tbmem\nfrom torch.optim.optimizer import _global_optimizer_post_hooks as hooks\nlen(hooks)",
    "gone": "%%tbmem\n1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def cells(folder: Path) -> dict[str, Cell]:
    """All cells, run one after the other in one kernel."""
    found, _ = run_notebook(list(CELLS.values()), folder)
    return dict(zip(CELLS, found, strict=True))


def test_optimizer_steps_are_steps_of_a_run(cells: dict[str, Cell], folder: Path) -> None:
    # given a cell with a training loop that knows nothing of tbmem
    chart, summary, memory = cells["watched"].shown

    # then its chart, its value, and the summary at the end are shown, and there is a run
    assert cells["watched"].kinds == ["display_data", "execute_result", "display_data", "display_data"]
    assert cells["watched"].value == "'value'"
    assert chart.startswith("step 40 · CPU memory · allocated ")
    assert "<svg" in cells["watched"].html[0]
    assert summary.startswith("40 steps in ")
    assert "look:  tensorboard --logdir logs" in summary
    assert memory.startswith("cell in ")
    assert (folder / "logs/run/plugins/tbmem/monitor.jsonl").is_file()
    # and nothing was written to the streams
    assert cells["watched"].stream("stderr") == ""


def test_a_cell_is_run_again(cells: dict[str, Cell], folder: Path) -> None:
    assert cells["again"].shown[1].startswith("40 steps in ")
    assert (folder / "logs/run_2/plugins/tbmem/monitor.jsonl").is_file()


def test_a_cell_without_steps_shows_what_it_keeps(cells: dict[str, Cell], folder: Path) -> None:
    chart, memory = cells["keeps"].shown

    assert "<svg" in cells["keeps"].html[0]
    assert "SHORT RUN" not in cells["keeps"].html[0]
    assert re.search(r"CPU: allocated .* before, .* after \(\+[\d.]+ MiB\) · resident peak in the cell ", memory)
    line = f"In[{list(CELLS).index('keeps') + 1}]:2  kept = [torch.zeros(1 << 18) for _ in range(8)]"
    assert f"kept: +8.00 MiB by module-level list 'kept' in __main__ · {line}" in memory
    # and it leaves no folder: those that there are belong to the other cells
    assert {path.name for path in (folder / "logs").iterdir() if not path.name.startswith("20")} == {
        *("run", "run_2", "own", "fails", "line", "api")
    }


def test_a_line_of_a_cell_is_named_by_the_cell(cells: dict[str, Cell]) -> None:
    number = list(CELLS).index("adds") + 1

    assert re.search(rf"list 'added' in __main__ · In\[{number}\]:\d  added\.append\(", cells["adds"].shown[-1])


def test_a_callback_of_the_cell_takes_the_place(cells: dict[str, Cell], folder: Path) -> None:
    chart, summary, _ = cells["own"].shown

    assert chart.startswith("step 7 · CPU memory")
    assert summary.startswith("7 steps in ")
    assert (folder / "logs/own/plugins/tbmem/monitor.jsonl").is_file()


def test_an_exception_has_its_usual_traceback_and_the_summary(cells: dict[str, Cell]) -> None:
    failed = cells["fails"]

    # the cell's line, and no frame of tbmem
    assert "----> 2 train(20, lambda step: 1 / (9 - step))" in failed.error
    assert failed.error.endswith("ZeroDivisionError: division by zero")
    assert "/tbmem/" not in failed.error
    assert failed.kinds == ["display_data", "error", "display_data", "display_data"]
    assert re.match(r"9 steps in .*, ended by ZeroDivisionError", failed.shown[1])


def test_an_exception_before_any_step(cells: dict[str, Cell]) -> None:
    assert cells["no step"].error.endswith("ValueError: x")
    assert "ended by ValueError" in cells["no step"].shown[-1]


def test_other_magics_and_await_work(cells: dict[str, Cell]) -> None:
    assert "Wall time" in cells["with time"].stream("stdout")
    assert cells["with time"].shown[0].startswith("3 steps in ")
    assert cells["awaits"].value == "4"
    assert cells["line"].shown[1].startswith("3 steps in ")
    assert cells["by a program"].shown[0].startswith("3 steps in ")


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("option", "%%tbmem: unrecognized arguments: --bogus; usage: %%tbmem [-c CONFIG]"),
        ("quote", "%%tbmem: No closing quotation in "),
        ("preset", "nope: no such config file, and no preset"),
        ("key", "monitor.devise: unknown key; did you mean monitor.devices?"),
        ("word", "%%tbmem: 'train.py' is not KEY=VALUE"),
    ],
)
def test_a_wrong_option_is_one_line(cells: dict[str, Cell], cell: str, line: str) -> None:
    said = cells[cell].stream("stderr").strip()

    assert line in said
    assert said.startswith("UsageError: ")
    assert len(said.splitlines()) == 1
    assert cells[cell].value == ""  # the cell was not run


def test_an_error_of_tbmem_is_one_line_and_no_traceback(cells: dict[str, Cell]) -> None:
    assert re.fullmatch("FileFormatError: missing: no such file or folder.*", cells["missing"].error)


def test_switched_off_it_shows_nothing(cells: dict[str, Cell]) -> None:
    assert cells["off"].kinds == ["execute_result"]


def test_records_are_displayed_as_html(cells: dict[str, Cell]) -> None:
    assert "<b>7 steps in " in cells["summary"].html[0]
    assert "<b>WARMUP</b> CPU too few steps for a verdict" in cells["findings"].html[0]


def test_nothing_is_left(cells: dict[str, Cell]) -> None:
    # a callback that was not stopped ends when its variable gets another
    assert cells["not stopped again"].value == "['tbmem', 'tbmem log', 'tbmem log']"
    assert cells["stop"].value == "[]"
    assert cells["unload"].value == "0"
    assert "Cell magic `%%tbmem` not found" in cells["gone"].stream("stderr")


def test_the_chart_is_drawn_while_the_cell_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    # given a cell that never ends by itself and keeps the kernel busy
    pictures: list[str] = []

    def on_output(client: Any, number: int, message: Any) -> None:
        if message["msg_type"] == "update_display_data" and number == 1:
            pictures.append(message["content"]["data"]["text/plain"])
            if len(pictures) == 2:  # when it has been drawn anew twice, the user interrupts
                asyncio.ensure_future(client.km.interrupt_kernel())

    (_, ended, after), _ = run_notebook(
        [CELLS["load"], "%%tbmem -c light --name run\ntrain(10**9)", THREADS], tmp_path, on_output
    )

    # then the pictures were of the loop, the traceback is the usual one, and all is over
    assert re.match(r"step \d+ · CPU memory", pictures[1])
    assert "KeyboardInterrupt" in ended.error
    assert "/tbmem/notebook" not in ended.error
    assert re.search(r"steps in .*, (interrupted|ended by KeyboardInterrupt)", "\n".join(ended.shown))
    assert after.value == "[]"
