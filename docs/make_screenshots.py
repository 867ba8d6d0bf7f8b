"""Make the pictures of the documents: a terminal, TensorBoard, and each view of the Memory tab in both themes.

    make screenshots

The runs are made for it, on a simulated T4: the demo, GPT-2, a run out of memory. ``--runs FOLDER`` keeps them, or
takes those of an earlier call. ``--overviews FOLDER`` takes instead one picture of the Overview for each log folder in
FOLDER, as ``benchmarks/five_seconds.py`` makes them.

Needs the group ``docs`` of pyproject.toml, Chromium and its driver (Debian: packages chromium and chromium-driver), and
for the runs a Python with the CUDA build of torch and transformers (``make test-gpu`` makes one).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from rich.console import Console
from rich.text import Text

from benchmarks.five_seconds import GPU_PYTHON, TROUBLES, on_gpu, record
from tests.browser.conftest import copy_log
from tests.browser.driving import Browser
from tests.tensorboard_server import Server

DOCS = Path(__file__).parent
DEMO = {"stable": (), "leak": ("--inject", "leak"), "spike": ("--inject", "spike")}
SIZE = ("--batch", "8", "--seq", "256", "--gpu", "t4")
GPT2 = """\
import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config()).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(12):
    tokens = torch.randint(0, 50257, (8, 256), device="cuda")
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CHART, BANDS = ".frame canvas[tabindex]", "section:nth-of-type(2) .frame canvas[tabindex]"
WIDTH, HIGHEST, COLOURS = 1440, 1500, 256


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A page of the tab: its view and state, an element to wait for, and what the pointer does."""

    view: str
    state: Mapping[str, str] = field(default_factory=dict)
    wait: str = "main"
    click: tuple[str, float, float] | None = None


PICTURES = {
    "overview": Picture(view="overview", wait="#runs"),
    "leak": Picture(view="overview", state={"cards": "leak"}, wait=".story.leak"),
    "out_of_memory": Picture(view="overview", state={"cards": "fragmented"}, wait=".story .changes"),
    "live": Picture(view="live", state={"run": "leak"}, wait="#live-plot"),
    "timeline": Picture(
        view="timeline", state={"run": "gpt2"}, wait="#allocator[data-event]", click=(CHART, 0.55, 0.5)
    ),
    "peak": Picture(view="peak", state={"run": "gpt2"}),
    "segments": Picture(view="segments", state={"run": "gpt2"}),
    "steps": Picture(view="steps", state={"run": "leak"}, wait="#steps-plot"),
    "operators": Picture(view="operators", state={"run": "gpt2"}),
    "ranks": Picture(view="ranks", state={"run": "ranks"}),
    "compare": Picture(view="compare", state={"run": "leak", "before": "stable", "after": "leak"}),
    "estimate": Picture(view="estimate", state={"run": "gpt2"}, wait="#variant-batch"),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=Path, help="folder of the runs, made if it is missing")
    arguments.add_argument("--overviews", type=Path, help="only Overviews, of the log folders in this folder")
    arguments.add_argument("--gpu-python", default=GPU_PYTHON)
    arguments.add_argument("--only", nargs="*", choices=PICTURES, help="only these views")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, closing(Browser(Path(folder))) as browser:
        if given.overviews:
            for logdir in sorted(path for path in given.overviews.iterdir() if path.is_dir()):
                with closing(Server(logdir, Path(folder) / "server.txt")) as server:
                    take(browser, server, Picture(view="overview"), False, given.overviews / f"{logdir.name}.png")
            return
        runs = given.runs or Path(folder) / "runs"
        if not runs.exists():
            draw_terminal(make_runs(runs, given.gpu_python), runs)
        with closing(Server(runs, Path(folder) / "server.txt")) as server:
            if not given.only:
                take_tensorboard(browser, server)
            for name in given.only or PICTURES:
                for dark in (False, True):
                    path = DOCS / f"pictures/{name}_{'dark' if dark else 'light'}.png"
                    take(browser, server, PICTURES[name], dark, path)


def make_runs(runs: Path, gpu_python: str) -> str:
    """Make all runs, and return what the console of the leaking demo showed."""

    def tbmem(*arguments: str) -> str:
        command = [*on_gpu(gpu_python), *arguments]
        return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr

    shown = {name: tbmem("demo", *options, f"run.logdir={runs}", f"run.name={name}") for name, options in DEMO.items()}
    script = runs / "gpt2/train.py"
    script.parent.mkdir()
    script.write_text(GPT2)
    tbmem("run", f"run.logdir={runs}", "run.name=gpt2", "--", str(script))
    tbmem("estimate", "gpt2", *SIZE, "--out", str(runs / "gpt2 (estimate)"), "--variants")
    record(runs, TROUBLES["oom_fragmentation"], "fragmented", gpu_python, "snapshot.history=run")
    record(runs, TROUBLES["killed"], "killed", gpu_python)
    for rank in range(4):
        copy_log(runs / ("leak" if rank == 2 else "stable"), runs / f"ranks/rank{rank}", rank)
    return shown["leak"]


def draw_terminal(lines: str, logdir: Path) -> None:
    """The lines of a run as an SVG, as a terminal of 118 columns shows them."""
    console = Console(record=True, width=118, file=open("/dev/null", "w"))
    console.print(Text("$ tbmem demo --inject leak", style="bold"))
    for line in lines.replace(str(logdir), "runs").splitlines():
        text = Text(re.sub(r"^(\d\d:\d\d:\d\d) tbmem ", r"\1 ", line))
        text.highlight_regex(r"^\d\d:\d\d:\d\d", "dim")
        text.highlight_regex(r"\bLEAK\b.*?(?= · full| · which|$)", "bold red")
        text.highlight_regex(r"tensorboard --logdir \S+", "bold green")
        console.print(text)
    console.save_svg(str(DOCS / "terminal.svg"), title="tbmem")


def take_tensorboard(browser: Browser, server: Server) -> None:
    """TensorBoard's own time series of the three runs of the demo."""
    browser.size(WIDTH, 960)
    chosen = {"runFilter": "^(leak|spike|stable)$", "tagFilter": "allocated|reserved|device_used"}
    filters = "&".join(f"{key}={quote(value)}" for key, value in chosen.items())
    browser.load(f"{server.address}/?darkMode=false&smoothing=0&{filters}#timeseries")
    browser.rest(10)
    browser.script("[...document.querySelectorAll('button')].find((one) => one.innerText.includes('Settings')).click()")
    browser.rest(4)
    save_small(browser.picture("page"), DOCS / "tensorboard.png")


def take(browser: Browser, server: Server, picture: Picture, dark: bool, path: Path) -> None:
    """Open a page of the tab, and keep a picture of all of it up to ``HIGHEST`` pixels."""
    pairs = {"view": picture.view, **picture.state}
    place = "&".join(f"p.tbmem.{key}={quote(value)}" for key, value in pairs.items())
    browser.size(WIDTH, 900)
    browser.open(f"{server.address}/?darkMode={'true' if dark else 'false'}#tbmem&{place}", picture.view)
    browser.until(f"document.querySelector({picture.wait!r}) !== null")
    browser.until("!document.querySelector('main').hasAttribute('aria-busy')")
    browser.rest(1)
    height = browser.script("document.querySelector('main').getBoundingClientRect().bottom + window.scrollY")
    browser.size(WIDTH, min(int(height) + 64 + 16, HIGHEST))
    browser.rest(1)
    if picture.click is not None:
        browser.point(*picture.click, click=True)
        browser.rest(1)
        browser.script("window.scrollTo(0, 0)")
    browser.rest(1)
    save_small(browser.picture("page"), path)


def save_small(source: Path, path: Path) -> None:
    """A screenshot in few colours."""
    path.parent.mkdir(exist_ok=True)
    with Image.open(source) as picture:
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


if __name__ == "__main__":
    main()
