"""How fast the Memory tab answers; run as ``python benchmarks/plugin.py``.

A window of a million allocations and a live log of a million steps are made, the latter once as tbmem writes it by
default (a row for ten steps) and once with a row for each step, which then goes on while it is asked for. Each view is
asked for as TensorBoard would ask: the first time in a process that has read nothing (cold), then with the file read
but other parameters (cached). The page is opened in a headless Chromium. Beside it, the way from a trace's file to its
memory curve, against torch-tb-profiler's own on the same file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import numpy as np
from harness import heading, table
from readers import CORPUS, recorded

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT))
MILLION = 1_000_000
TURNS = 5
CACHED_MS, COLD_MS, MEGABYTES, PAGE_SECONDS = 300, 3000, 2, 3
AT_ONCE, ALONE_MEGABYTES, AT_ONCE_MEGABYTES = 20, 600, 1000
"""Questions at the same time, and the memory of the process (its peak) that a log of 500 MB may take."""
ROUTE = "/data/plugin/tbmem/data"


def window(place: Path, count: int) -> Path:
    """A recording of a training: activations that backward frees in reverse, gradients that come and go."""
    from tbmem.model.category import Phase
    from tbmem.model.stacks import StackBuilder
    from tbmem.model.timeline import AllocationTimeline, save_timeline
    from tbmem.model.timeline_tables import AllocationRows, DeviceTotals

    layers, random = 500, np.random.default_rng(0)
    steps = count // (2 * layers)
    each = np.arange(layers)
    # of a step: 500 activations come, then each goes as a gradient comes and goes
    events = 4 * layers
    alloc = np.concatenate([each, layers + 3 * each])
    free = np.concatenate([layers + 3 * each[::-1] + 1, layers + 3 * each + 2])
    size = np.concatenate([random.integers(1 << 16, 8 << 20, layers), random.integers(1 << 12, 1 << 20, layers)])
    first = np.repeat(np.arange(steps) * events, 2 * layers)
    times = np.cumsum(random.integers(200, 3000, steps * events)) + 1_700_000_000_000_000_000
    builder = StackBuilder()
    stacks = [
        builder.stack(
            builder.frame(f"/home/user/model_{layer % 50}.py", depth + layer, f"forward_{depth}") for depth in range(20)
        )
        for layer in range(layers)
    ]
    rows = AllocationRows.of(
        steps * 2 * layers,
        bytes=np.tile(size, steps) * (1 + np.arange(steps * 2 * layers) % 7 // 6),
        alloc_event=np.tile(alloc, steps) + first,
        free_event=np.tile(free, steps) + first,
        alloc_ns=times[np.tile(alloc, steps) + first],
        free_ns=times[np.tile(free, steps) + first],
        step=np.repeat(np.arange(steps), 2 * layers),
        phase=np.tile(np.repeat([int(Phase.FORWARD), int(Phase.BACKWARD)], layers), steps),
        stack=np.tile(np.tile(stacks, 2), steps),
        module=np.tile(np.tile(each, 2), steps),
    )
    timeline = AllocationTimeline(
        source="snapshot",
        rows=rows,
        devices=(DeviceTotals(name="cuda:0", type=1, index=0, events=steps * events),),
        stacks=builder.table(),
        modules=tuple(f"GPT.layers.{layer}.mlp" for layer in range(layers)),
    )
    save_timeline(timeline, place)
    return place


def log(folder: Path, steps: int, every: int) -> None:
    """The live log of a training with an accelerator."""
    from tbmem.model.files import MONITOR_LOG
    from tbmem.model.monitor_log import to_line
    from tbmem.model.sample import MemorySample
    from tbmem.model.sample_row import RowBuilder

    place = folder / MONITOR_LOG
    place.parent.mkdir(parents=True)
    gib, builder = 1 << 30, RowBuilder(every)
    noise = np.random.default_rng(0).integers(0, gib, steps).tolist()
    counters = {"reserved": 30 * gib, "peak_reserved": 30 * gib, "inactive_split": 1 << 20, "live_blocks": 1234}
    counters |= {
        "alloc_retries": 0,
        "ooms": 0,
        "device_used": 31 * gib,
        "device_total": 80 * gib,
        "workers_rss": 1 << 28,
    }
    counters |= {"host_rss": 4 * gib, "host_available": 99 * gib}
    with place.open("w") as file:
        header = {"type": "header", "schema": 1, "started": 1.7e9, "rank": 0, "host": "node7", "torch": "2.13.0"}
        file.write(json.dumps(header) + "\n")
        for step in range(1, steps + 1):
            level = 20 * gib + noise[step - 1] + 200 * step
            peak = 70 * gib if step == steps // 2 else level + gib
            sample = MemorySample(
                step=step,
                time=1.7e9 + 0.05 * step,
                device="cuda:0",
                allocated=level,
                active=level,
                peak_allocated=peak,
                updated=True,
                **counters,
            )
            file.writelines(to_line(row) + "\n" for row in builder.add([sample]))


class Asking:
    """A TensorBoard without a server, that has read nothing yet.

    Args:
        logdir: The log folder.
    """

    def __init__(self, logdir: Path) -> None:
        from tensorboard.backend import application
        from tensorboard.plugins.base_plugin import TBContext
        from werkzeug.test import Client

        from tbmem.plugin.loader import MemoryPluginLoader

        context = TBContext(logdir=str(logdir), flags=SimpleNamespace(logdir_spec="", path_prefix=""))
        self._client = Client(application.TensorBoardWSGI([MemoryPluginLoader().load(context)]))

    def ask(self, view: str, **params: Any) -> tuple[float, int, Any]:
        """Milliseconds, bytes before compression, and the answer."""
        query = urlencode({name.rstrip("_"): value for name, value in params.items()})
        begin = time.perf_counter()
        answer = self._client.get(f"{ROUTE}/{view}?{query}")
        took = 1000 * (time.perf_counter() - begin)
        assert answer.status_code == 200, answer.data
        return took, len(answer.data), json.loads(answer.data)


def cold(logdir: Path, view: str, **params: Any) -> float:
    """Milliseconds of the first question in a fresh process, its imports not counted."""
    command = [sys.executable, __file__, "--ask", str(logdir), view, json.dumps(params)]
    times = [
        float(subprocess.run(command, capture_output=True, text=True, check=True, env=_environment()).stdout)
        for _ in range(2)
    ]
    return min(times)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


def views_of_window(logdir: Path, run: str) -> list[list[object]]:
    """A line per view of a recording."""
    asking = Asking(logdir)
    _, _, index = asking.ask("index")
    (item,) = (one for one in index["runs"] if one["run"] == run)
    place = {"run": run, "file": item["recordings"][0]["file"]}
    first, _, whole = asking.ask("timeline", **place)
    low, high = whole["axis"]["extent"]
    quarter = {"from_": low + 0.5 * (high - low), "to": low + 0.75 * (high - low)}
    row = asking.ask("tensors", **place)[2]["columns"]["row"][0]
    questions: list[tuple[str, str, dict[str, Any]]] = [
        ("timeline", "timeline", {"points": 1999}),
        ("timeline, zoomed", "timeline", quarter),
        ("timeline, as the page asks", "timeline", {"largest": 1000, "points": 2620}),
        ("timeline, 2500 bands", "timeline", {"largest": 2500, "points": 2620}),
        ("range", "range", quarter),
        ("peak", "peak", {}),
        ("tensors", "tensors", {}),
        ("tensors, searched", "tensors", {"search": "model_7"}),
        ("operators", "operators", {}),
        ("operators of a range", "operators", quarter),
        ("segments", "segments", {}),
        ("stack", "stack", {"row": row}),
    ]
    lines = [["window", "first of all", f"{cold(logdir, 'timeline', **place):.0f} ms", f"{first:.0f} ms", ""]]
    for name, view, more in questions:
        params = {**place, **more} if view != "stack" else {"run": run, "file": place["file"], **more}
        lines.append(["window", name, "", *_cached(asking, view, params)])
    return lines


def _cached(asking: Asking, view: str, params: dict[str, Any]) -> tuple[str, str]:
    """The file is read; each turn asks something new, so that no answer is taken from the cache."""
    took, size = [], 0
    for turn in range(TURNS):
        more = {"limit": 990 + turn} if view == "tensors" else {"turn": turn}
        found, size, _ = asking.ask(view, **{**params, **more})
        took.append(found)
    return f"{max(took[1:]):.0f} ms", f"{size / 1e6:.2f} MB"


def views_of_log(logdir: Path, run: str, name: str) -> list[list[object]]:
    """A line per view of a log."""
    asking = Asking(logdir)
    place = {"run": run}
    lines: list[list[object]] = []
    for view, more in (("live", {}), ("live", {"x": "time"}), ("live", {"from_": 2000, "to": 4000}), ("overview", {})):
        first = f"{cold(logdir, view, **place):.0f} ms" if not more else ""
        title = view + (", zoomed" if "to" in more else f", over {more['x']}" if more else "")
        lines.append([name, title, first, *_cached(asking, view, {**place, **more})])
    return lines


def followed(logdir: Path, run: str) -> dict[str, float]:
    """A log that is written while it is shown, in a process that has read nothing: times, and the process' memory."""
    from tbmem.model.files import MONITOR_LOG

    asking, own = Asking(logdir), _peak_megabytes()
    asking.ask("index")
    first, _, answer = asking.ask("live", run=run)
    alone = _peak_megabytes()
    path, took = logdir / run / MONITOR_LOG, []
    with path.open("rb") as file:
        file.seek(-4096, os.SEEK_END)
        last = json.loads(file.read().splitlines()[-1])
    for turn in range(1, TURNS + 1):
        with path.open("a") as file:
            file.write(json.dumps({**last, "step": last["step"] + turn, "first_step": last["step"] + turn}) + "\n")
        time.sleep(1.1)  # folders are searched once a second
        milliseconds, size, answer = asking.ask("live", run=run, after=answer["cursor"])
        assert answer["more"] and len(answer["series"][0]["x"]) == 1
        took.append(milliseconds)
    whole = asking.ask("live", run=run)[0]
    other, begin = Asking(logdir), time.perf_counter()
    del asking
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda turn: other.ask("live", run=run, turn=turn), range(AT_ONCE)))
    return {
        **{"before, MB": own, "first, ms": first, "after it, MB": alone},
        **{"a new row, ms": max(took), "its answer, KB": size / 1e3, "all again, ms": whole},
        **{f"{AT_ONCE} at once, s": time.perf_counter() - begin, "after them, MB": _peak_megabytes()},
    }


def _peak_megabytes() -> float:
    # getrusage's ru_maxrss has the peak of the process that started this one as well
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e6


def page(logdir: Path, place: Path, views: Sequence[tuple[str, str]]) -> list[list[object]]:
    """Seconds until a view is drawn in Chromium, TensorBoard's own page included.

    ``first``: in a browser that was never opened; ``new server``: in one that has shown another server's pages, whose
    files the server has yet to read, the median; ``again``: the same server's, the median.
    """
    from tests.browser.driving import Browser
    from tests.tensorboard_server import Server

    def opened(browser: Browser, server: Server, view: str, run: str) -> float:
        browser.open(f"{server.address}/#tbmem&p.tbmem.view={view}&p.tbmem.run={run}&p.tbmem.runs={run}", view)
        return browser.waited

    lines: list[list[object]] = []
    for view, run in views:
        with closing(Browser(place)) as browser:
            took: dict[str, list[float]] = {"first": [], "new server": [], "again": []}
            for turn in range(TURNS):
                with closing(Server(logdir, place / "log.txt")) as server:
                    took["new server" if turn else "first"].append(opened(browser, server, view, run))
                    took["again"].append(opened(browser, server, view, run))
        lines.append([f"{view}, {run}", *(f"{median(each):.2f} s" for each in took.values())])
    return lines


def curve_by_tbmem(path: str) -> int:
    """From the file of a trace to the answer that the timeline is drawn from."""
    found = Asking(Path(path).parent)
    return len(found.ask("timeline", run=".", file=Path(path).name)[2]["x"])


def curve_by_torch_tb_profiler(path: str) -> int:
    """From the file of a trace to the answer that torch-tb-profiler's memory curve is drawn from."""
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    data = RunProfileData.parse("worker", "span", path, tempfile.gettempdir())
    data.process()
    profile = RunGenerator("worker", "span", data).generate_run_profile()
    curve = profile.get_memory_curve()
    return len(json.dumps(curve))


CURVES = {one.__name__: one for one in (curve_by_torch_tb_profiler, curve_by_tbmem)}


def curves(path: Path) -> list[object]:
    """Both on one file, in turn, the best of each."""
    best: dict[str, float] = {}
    for _ in range(3):
        for name in CURVES:
            command = [sys.executable, __file__, "--curve", name, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
            best[name] = min(float(done.stdout.splitlines()[-1]), best.get(name, 1e9))
    theirs, ours = best.values()
    return [path.name[:40], f"{theirs:.0f} ms", f"{ours:.0f} ms", f"{theirs / ours:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ask", nargs=3, metavar=("LOGDIR", "VIEW", "PARAMS"), help=argparse.SUPPRESS)
    parser.add_argument("--curve", nargs=2, metavar=("WHOSE", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--follow", nargs=2, metavar=("LOGDIR", "RUN"), help=argparse.SUPPRESS)
    parser.add_argument("--no-browser", action="store_true", help="leave the page out")
    arguments = parser.parse_args()
    if arguments.ask:
        logdir, view, params = arguments.ask
        print(Asking(Path(logdir)).ask(view, **json.loads(params))[0])
    elif arguments.follow:
        print(json.dumps(followed(Path(arguments.follow[0]), arguments.follow[1])))
    elif arguments.curve:
        whose, path = arguments.curve
        begin = time.perf_counter()
        CURVES[whose](path)
        print(1000 * (time.perf_counter() - begin))
    else:
        with tempfile.TemporaryDirectory() as folder:
            report(Path(folder), not arguments.no_browser)


def report(folder: Path, browser: bool) -> None:
    logdir = folder / "runs"
    (logdir / "window").mkdir(parents=True)
    window(logdir / "window" / "million.tbmem.npz", MILLION)
    log(logdir / "every_10", MILLION, 10)
    print(heading("plugin.py: the Memory tab"))
    lines = views_of_window(logdir, "window") + views_of_log(logdir, "every_10", "log, a row for ten steps")
    each = folder / "other"
    log(each / "every_1", MILLION, 1)
    lines += views_of_log(each, "every_1", "log, a row for each step")
    command = [sys.executable, __file__, "--follow", str(each), "every_1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
    figures = json.loads(done.stdout)
    limits = f"limits: cold {COLD_MS} ms, cached {CACHED_MS} ms, answer {MEGABYTES} MB"
    print(table(["a million", "view", "cold", "cached", "answer"], lines), end=f"\n\n{limits}\n\n")
    print(table(["a million rows, followed", *figures], [["", *(f"{value:.1f}" for value in figures.values())]]))
    print(f"\nlimits: {ALONE_MEGABYTES} MB after the first, {AT_ONCE_MEGABYTES} MB after {AT_ONCE} at once\n")
    if browser:
        pages = page(logdir, folder, (("overview", "every_10"), ("live", "every_10"), ("timeline", "window")))
        pages += page(each, folder, (("overview", "every_1"), ("live", "every_1")))
        print(
            table(["page in Chromium", "first", "new server", "again"], pages), end=f"\n\nlimit: {PAGE_SECONDS} s\n\n"
        )
    traces = [recorded(folder / "calls.pt.trace.json", steps=12)]
    if CORPUS.is_dir():
        traces.append(max((CORPUS / "traces").iterdir(), key=lambda path: path.stat().st_size))
    rows = []
    for number, path in enumerate(traces):
        alone = folder / f"trace{number}"
        alone.mkdir()
        own = alone / path.name
        own.write_bytes(path.read_bytes())
        rows.append(curves(own))
    print(table(["from file to curve", "torch-tb-profiler", "tbmem", "ratio"], rows))


if __name__ == "__main__":
    main()
