"""Prints every figure of a run in all the places where it stands, side by side, and fails where two differ.

    python benchmarks/consistency.py RUN [--console FILE] [--summary FILE]

RUN is a run's folder. The live log is read here with nothing but ``json``, the event file with TensorBoard's own
reader; everything else is what tbmem shows: ``watch``, ``check``, ``report``, ``analyze`` and ``compare``, as text and
as JSON, and each view of the Memory tab, asked through TensorBoard's own application. FILE is what the run printed on
the console, or the summary that ``--json`` printed. Exit code 0: every figure has one value, 1: one has two.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensorboard.backend import application
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from tbmem.plugin.loader import MemoryPluginLoader

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"([+-]?[\d ]*\d(?:\.\d+)?) (B|KiB|MiB|GiB|TiB)"
RATE = SIZE + r"(?:/step| per step| a step)"
PEAK = r"(?:resident peak|highest level|peak|highest) [^\n:·]*: " + SIZE
OWN = r"of this tbmem " + SIZE
FORECAST = r"out of memory in ~([\d ]+) steps? \(([^)]*)\)"
SECONDS = {"d": 86400, "h": 3600, "min": 60, "s": 1, "ms": 1e-3}


@dataclass(frozen=True)
class Reading:
    """One figure in one place.

    Attributes:
        figure: What it is, such as ``peak``.
        of: What it is of: a rank and device of the run, or a recording.
        place: Where it stands.
        value: A number (bytes, steps, seconds), or a word.
        tolerance: Half of the last digit that is shown, in the value's unit.
    """

    figure: str
    of: str
    place: str
    value: float | str
    tolerance: float = 0.0

    def agrees_with(self, other: Reading) -> bool:
        """Whether both can be roundings of one value."""
        if isinstance(self.value, str) or isinstance(other.value, str):
            return self.value == other.value
        slack = self.tolerance + other.tolerance + 1e-6 * abs(self.value)
        return abs(self.value - other.value) <= slack


@dataclass
class Screens:
    """What all screens show of one run; each is asked once.

    Attributes:
        run: The run's folder.
        console: What the run printed; empty if it is not known.
        summary: The summary at the end, as ``--json`` prints it.
    """

    run: Path
    console: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """Lines of the live log, read with nothing of tbmem."""
        path = self.run / "plugins" / "tbmem" / "monitor.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def holds_profiler(self, device: str, step: int) -> bool:
        """Whether a step's row counts for no peak: on the CPU the profiler's own memory lies in the same heap."""
        return device == "cpu" and step in self._profiled

    @cached_property
    def _profiled(self) -> set[int]:
        rows = [row for row in self.log if row["type"] == "samples" and row.get("profiled")]
        return {row["step"] for row in rows if row.get("host_peak_rss") not in self.spikes_in_windows}

    @cached_property
    def spikes_in_windows(self) -> dict[int, int]:
        """By the resident peaks of spikes while a window was open, which count, what of them is tbmem's."""
        facts = [line["evidence"] for line in self.log if line["type"] == "finding" and line["kind"] == "spike"]
        own = [(fact["peak_bytes"], fact["left_out_bytes"]) for fact in facts if "left_out_bytes" in fact]
        plain = [row["host_own"] for row in self.log if row["type"] == "samples" and not row.get("profiled")]
        return {peak + left_out: left_out + plain[-1] for peak, left_out in own}

    @cached_property
    def scalars(self) -> dict[str, list[tuple[int, float]]]:
        """Scalars by tag, as steps and bytes."""
        events = EventAccumulator(str(self.run))
        with contextlib.redirect_stderr(None):
            events.Reload()
        tags = events.Tags()["scalars"]
        return {tag: [(one.step, one.value * 2**30) for one in events.Scalars(tag)] for tag in tags}

    @cached_property
    def tab(self) -> Callable[..., Any]:
        """Asks the Memory tab as its page does."""
        flags = SimpleNamespace(logdir_spec="", path_prefix="")
        plugin = MemoryPluginLoader().load(TBContext(logdir=str(self.run.parent), flags=flags))
        client = Client(application.TensorBoardWSGI([plugin]))

        def ask(view: str, **params: str) -> Any:
            answer = client.get(f"/data/plugin/tbmem/data/{view}", query_string=params)
            if answer.status_code != 200:
                raise RuntimeError(f"view {view} of {params}: {answer.status}")
            return answer.json

        return ask

    def command(self, *arguments: str) -> str:
        """What a command of tbmem prints; a check that does not hold is an answer, too."""
        done = subprocess.run(
            [sys.executable, "-m", "tbmem", *arguments], capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"tbmem {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    @cached_property
    def recordings(self) -> list[str]:
        """Recordings of the run, as the tab lists them."""
        (run,) = [one for one in self.tab("index")["runs"] if one["run"] == self.run.name]
        return [one["file"] for one in run["recordings"]]


def sizes(text: str, pattern: str) -> Iterator[tuple[float, float]]:
    """Bytes as people read them, each with half of its last digit."""
    for number, unit in re.findall(pattern, text):
        digits = number.replace(" ", "")
        decimals = len(digits.partition(".")[2])
        yield float(digits) * UNITS[unit], 0.5 * 10**-decimals * UNITS[unit]


def duration(text: str) -> tuple[float, float]:
    """Seconds as people read them, with half of the smallest unit that is shown."""
    parts = re.findall(r"([\d.]+) (d|h|min|s|ms)", text)
    seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
    number, unit = parts[-1]
    return seconds, 0.5 * 10 ** -len(number.partition(".")[2]) * SECONDS[unit]


def _of(rank: Any, device: str) -> str:
    return f"rank {rank} {device}"


def _status(answer: Mapping[str, Any], place: str) -> Iterator[Reading]:
    yield Reading("status", "run", place, answer["status"])
    yield Reading("status in words", "run", place, answer["status_text"])
    if answer.get("ended_by"):
        yield Reading("ended by", "run", place, answer["ended_by"])


def _present(
    of: str, place: str, figures: Mapping[str, float | str | None], tolerance: float = 0.0
) -> Iterator[Reading]:
    for figure, value in figures.items():
        if value is not None:
            yield Reading(figure, of, place, value, tolerance)


# --- the run ---


def log_readings(screens: Screens) -> Iterator[Reading]:
    """The live log, figure by figure."""
    rows = [line for line in screens.log if line["type"] == "samples"]
    ends = [line for line in screens.log if line["type"] == "end"]
    steps = max((row["step"] for row in rows if row["count"]), default=0)
    yield Reading("steps", "run", "log", ends[-1]["steps"] if ends else steps)
    for device in dict.fromkeys(row["device"] for row in rows):
        own = [row for row in rows if row["device"] == device]
        counted = [row for row in own if not screens.holds_profiler(device, row["step"])] or own
        counter = "peak_allocated" if "peak_allocated" in own[-1] else "host_peak_rss"
        peak = max((row[counter] for row in counted if row.get(counter) is not None), default=None)
        last = [row for row in own if row["count"]][-1]  # one without is of a step that has not ended
        figures = {"allocated": last["allocated"], "reserved": last.get("reserved"), "peak": peak}
        if counter == "host_peak_rss" and peak is not None:
            at_peak = next(row.get("host_own") or 0 for row in counted if row.get(counter) == peak)
            tbmems = screens.spikes_in_windows.get(peak, at_peak)
            figures |= {"tbmem's own at the peak": tbmems, "peak without tbmem's own": peak - tbmems}
        yield from _present(_of(last["rank"], device), "log", {**figures, "capacity": last.get("device_total")})
    for verdict in ends[-1]["verdicts"] if ends else ():
        yield from finding_readings(verdict, "log, verdict")


def finding_readings(finding: Mapping[str, Any], place: str) -> Iterator[Reading]:
    """A finding's kind, evidence and sentence."""
    of, evidence = _of(finding["rank"], finding["device"]), finding["evidence"]
    yield Reading("verdict", of, place, finding["kind"])
    names = {"bytes_per_step": "growth per step", "steps_left": "steps left", "seconds_left": "seconds left"}
    tolerance = {"bytes_per_step": 0.5, "steps_left": 0.5, "seconds_left": 0.05}
    for key, figure in names.items():
        if evidence.get(key) is not None:
            yield Reading(figure, of, place, evidence[key], tolerance[key])
    yield from sentence_readings(finding["message"], of, f"{place}, in words")


def sentence_readings(text: str, of: str, place: str) -> Iterator[Reading]:
    """What a sentence says of growth and of the end."""
    flat = " ".join(text.split())
    for value, tolerance in sizes(flat, RATE):
        yield Reading("growth per step", of, place, value, tolerance)
    for steps, time in re.findall(FORECAST, flat):
        yield Reading("steps left", of, place, float(steps.replace(" ", "")), 0.5)
        yield Reading("seconds left", of, place, *duration(time))


def scalar_readings(screens: Screens) -> Iterator[Reading]:
    """TensorBoard's scalars, as its own reader returns them; they are 32-bit numbers of GiB."""
    rows = [line for line in screens.log if line["type"] == "samples"]
    devices = list(dict.fromkeys((row["rank"], row["device"]) for row in rows))
    for rank, device in devices:
        prefix = "memory" if len(devices) == 1 else f"memory/{device}"
        peaks = screens.scalars.get(f"{prefix}/peak_allocated") or screens.scalars.get(f"{prefix}/host_peak_rss")
        counted = [value for step, value in peaks or () if not screens.holds_profiler(device, step)]
        found = {"peak": max(counted, default=None)}
        for figure in ("allocated", "reserved"):
            values = screens.scalars.get(f"{prefix}/{figure}")
            found[figure] = values[-1][1] if values else None
        for reading in _present(_of(rank, device), "scalars", found):
            yield Reading(reading.figure, reading.of, reading.place, reading.value, 2**-23 * abs(float(reading.value)))


def console_readings(screens: Screens) -> Iterator[Reading]:
    """The lines at the end of the run, and the summary as JSON."""
    devices = list(dict.fromkeys((row["rank"], row["device"]) for row in screens.log if row["type"] == "samples"))
    if len(devices) == 1:
        of = _of(*devices[0])
        verdicts = [line for line in screens.console.splitlines() if " verdict " in line]
        for line in verdicts:
            yield Reading("verdict", of, "console", line.split(": ", 1)[1].split(" · ")[0].lower().replace(" ", "_"))
            yield from sentence_readings(line, of, "console")
        for value, tolerance in sizes("\n".join(screens.console.splitlines()[-8:]), PEAK):
            yield Reading("peak", of, "console", value, tolerance)
        for value, tolerance in sizes(screens.console, OWN):
            yield Reading("tbmem's own at the peak", of, "console", value, tolerance)
    rank = screens.summary.get("rank", 0)
    for device, kind in screens.summary.get("verdicts", {}).items():
        yield Reading("verdict", _of(rank, device), "summary --json", kind)
    for device, peak in screens.summary.get("peak", {}).items():
        of = _of(rank, device)
        figures = {"peak": peak["bytes"], "peak step": peak["step"], "tbmem's own at the peak": peak["own"] or None}
        yield from _present(of, "summary --json", figures)
        for value, tolerance in sizes(peak["text"], SIZE):
            yield Reading("peak", of, "summary --json, in words", value, tolerance)
    if screens.summary:
        yield Reading("steps", "run", "summary --json", screens.summary["steps"])


def card_figures(card: Mapping[str, Any]) -> dict[str, Any]:
    """A device's figures as ``watch --json``, the Overview's cards and the Ranks view name them."""
    names = {
        "verdict": "verdict",
        "allocated": "allocated",
        "reserved": "reserved",
        "peak": "peak",
        "peak_step": "peak step",
        "peak_own": "tbmem's own at the peak",
        "total": "capacity",
        "capacity": "capacity",
        "headroom": "headroom",
        "growth_per_step": "growth per step",
    }
    return {figure: card[key] for key, figure in names.items() if card.get(key) is not None}


def watch_readings(screens: Screens) -> Iterator[Reading]:
    """``tbmem watch --once``."""
    found = json.loads(screens.command("watch", "--once", "--all", "--json", str(screens.run)))
    for run in found:
        yield Reading("steps", "run", "watch --json", run["step"])
        yield from _status(run, "watch --json")
        for rank in run["ranks"]:
            for card in rank["devices"]:
                yield from _present(_of(rank["rank"], card["device"]), "watch --json", card_figures(card), 0.5)
    cards = [(rank["rank"], card) for run in found for rank in run["ranks"] for card in rank["devices"]]
    if len(cards) == 1:
        rank, card = cards[0]
        of, text = _of(rank, card["device"]), screens.command("watch", "--once", "--all", str(screens.run))
        for figure, word in (("allocated", "allocated"), ("reserved", "reserved"), ("peak", "peak")):
            for value, tolerance in sizes(" ".join(text.split()), rf"{word} {SIZE}"):
                yield Reading(figure, of, "watch", value, tolerance)
        yield from sentence_readings(text, of, "watch")


def check_readings(screens: Screens) -> Iterator[Reading]:
    """``tbmem check``, with limits that nothing passes."""
    limits = ("--max-peak", "1B", "--max-growth", "1B/step", "--no-leak")
    found = json.loads(screens.command("check", str(screens.run), *limits, "--json"))
    yield from _status(found, "check --json")
    for one in found["checks"]:
        of = one["place"]
        if one["check"] == "max-peak":
            yield from _peak_check_readings(one)
        elif one["check"] == "max-growth":
            yield from _present(of, "check --json", {"growth per step": one["measured"]}, 0.5)
            for value, tolerance in list(sizes(one["message"], SIZE))[:1]:
                yield Reading("growth per step", of, "check", value, tolerance)
        else:
            for line in one["details"]:
                yield from sentence_readings(line, of, "check, in words")


def _peak_check_readings(check: Mapping[str, Any]) -> Iterator[Reading]:
    """The limit of a peak is one of the program's: what tbmem itself has added is told, and subtracted."""
    said = list(sizes(check["message"].partition(", at most ")[0], SIZE))
    figures = ("peak without tbmem's own", "peak", "tbmem's own at the peak") if len(said) > 1 else ("peak",)
    yield from _present(check["place"], "check --json", {figures[0]: check["measured"]})
    for figure, (value, tolerance) in zip(figures, said, strict=True):
        yield Reading(figure, check["place"], "check", value, tolerance)


def report_readings(screens: Screens) -> Iterator[Reading]:
    """``tbmem report``: JSON, the console's text and the README that it writes."""
    found = json.loads(screens.command("report", str(screens.run), "--json"))
    yield Reading("steps", "run", "report --json", found["steps"])
    for one in found["series"]:
        figures = {"allocated": one["allocated_bytes"], "reserved": one["reserved_bytes"]}
        yield from _present(_of(one["rank"], one["device"]), "report --json", figures)
    for peak in found["peaks"]:
        figures = {"peak": peak["bytes"], "peak step": peak["step"]}
        figures |= {"capacity": peak["total"], "headroom": peak["headroom"]}
        yield from _present(_of(peak["rank"], peak["device"]), "report --json", figures)
    yield from _status(found, "report --json")
    with tempfile.TemporaryDirectory() as folder:
        text = screens.command("report", str(screens.run), "--out", folder)
        readme = Path(folder, "latest", "README.md")
        texts = {"report": text, "report, README": readme.read_text()}
        if len(found["series"]) == 1:
            of = _of(found["series"][0]["rank"], found["series"][0]["device"])
            for place, words in texts.items():
                for value, tolerance in list(sizes(words, PEAK))[:1]:
                    yield Reading("peak", of, place, value, tolerance)
                yield from sentence_readings(words, of, place)
        yield from _report_recordings(Path(folder, "latest"), texts)


def _report_recordings(folder: Path, texts: Mapping[str, str]) -> Iterator[Reading]:
    for analysis in folder.glob("*/analysis.json"):
        found = json.loads(analysis.read_text())
        name = Path(found["path"]).name
        yield from analysis_readings(found, "report, analysis.json")
        for value, tolerance in sizes(texts["report"], rf"{re.escape(name)}: peak {SIZE}"):
            yield Reading("peak", name, "report", value, tolerance)


def tab_readings(screens: Screens) -> Iterator[Reading]:
    """Overview, Live, Ranks and Compare of the Memory tab."""
    name = screens.run.name
    (run,) = screens.tab("overview", run=name)["runs"]
    yield Reading("steps", "run", "tab, Overview", run["step"])
    yield from _status(run, "tab, Overview")
    (item,) = [one for one in screens.tab("index")["runs"] if one["run"] == name]
    yield Reading("status", "run", "tab, list of runs", item["status"])
    for card in run["cards"]:
        of = _of(card["rank"], card["device"])
        yield from _present(of, "tab, Overview", card_figures(card), 0.5)
        yield from sentence_readings(card["message"], of, "tab, Overview, in words")
    for series in screens.tab("live", run=name)["series"]:
        figures = {key: _last(series[key]) for key in ("allocated", "reserved")}
        points = zip(series["step"], series["peak"], strict=True)
        counted = [peak for step, peak in points if not screens.holds_profiler(series["device"], step)]
        peak = max((value for value in counted if value is not None), default=None)
        figures |= {"peak": peak, "capacity": series["capacity"]}
        yield from _present(_of(series["rank"], series["device"]), "tab, Live", figures)
    columns = screens.tab("ranks", run=name)["columns"]
    for place in range(len(columns["rank"])):
        card = {key: values[place] for key, values in columns.items()}
        yield from _present(_of(card["rank"], card["device"]), "tab, Ranks", card_figures(card), 0.5)
    yield from _compared(screens.tab("compare", before=name, after=name), "tab, Compare")


def _last(values: Sequence[Any]) -> Any:
    return next((value for value in reversed(values) if value is not None), None)


def _compared(found: Mapping[str, Any], place: str) -> Iterator[Reading]:
    for device in found["runs"]:
        # what tbmem itself has added to a resident peak is subtracted
        peak = "peak without tbmem's own" if device["device"] == "cpu" else "peak"
        names = {"run_peak_bytes": peak, "run_last_bytes": "allocated"}
        for name, after in zip(device["totals"]["name"], device["totals"]["after"], strict=True):
            if name in names:
                yield Reading(names[name], _of(0, device["device"]), place, after)
    names = {"peak_bytes": "peak", "allocated_bytes": "allocated", "reserved_bytes": "reserved"}
    for device in found["recordings"]:
        for name, after in zip(device["totals"]["name"], device["totals"]["after"], strict=True):
            if name in names:
                yield Reading(names[name], found["after_file"], place, after)


# --- its recordings ---


def analysis_readings(analysis: Mapping[str, Any], place: str) -> Iterator[Reading]:
    """The main device of an analysis as JSON."""
    name = Path(analysis["path"]).name
    device = next(iter(analysis["devices"].values()))
    free = device["fragmentation"]
    figures = {
        "peak": device["peak_bytes"],
        "allocated": device["allocated_bytes"],
        "reserved": device["reserved_bytes"],
        "cached": free["cached_bytes"],
        "fragmented": free["fragmented_bytes"],
    }
    yield from _present(name, place, figures)
    yield from _present(name, place, {f"{key} at the peak": size for key, size in device["by_category"].items()})


def recording_readings(screens: Screens) -> Iterator[Reading]:
    """``tbmem analyze`` and the tab's views of each recording."""
    for file in screens.recordings:
        name = Path(file).name
        analysis = json.loads(screens.command("analyze", str(screens.run / file), "--json"))
        yield from analysis_readings(analysis, "analyze --json")
        params = {"run": screens.run.name, "file": file}
        timeline = screens.tab("timeline", **params)
        yield Reading("peak", name, "tab, Timeline, mark", timeline["peak"]["bytes"])
        yield Reading("peak", name, "tab, Timeline, curve", max(timeline["total"]))
        yield Reading("peak", name, "tab, Timeline, categories", max(map(sum, zip(*timeline["bytes"], strict=True))))
        peak = screens.tab("peak", **params)
        yield Reading("peak", name, "tab, Peak", peak["peak"]["bytes"])
        for key in ("by_category", "by_phase", "merged", "by_line", "by_operator"):
            yield Reading("peak", name, f"tab, Peak, sum {key}", sum(peak[key]["bytes"]))
        shares = dict(zip(peak["by_category"]["name"], peak["by_category"]["bytes"], strict=True))
        yield from _present(name, "tab, Peak", {f"{key} at the peak": size for key, size in shares.items()})
        yield Reading("peak", name, "tab, Tensors", screens.tab("tensors", **params)["found_bytes"])
        segments = screens.tab("segments", **params)
        free = segments["fragmentation"]
        figures = {key: segments[key] for key in ("allocated", "reserved")}
        figures |= {"cached": free["cached_bytes"], "fragmented": free["fragmented_bytes"]}
        yield from _present(name, "tab, Segments", figures)


SOURCES: tuple[Callable[[Screens], Iterable[Reading]], ...] = (
    log_readings,
    scalar_readings,
    console_readings,
    watch_readings,
    check_readings,
    report_readings,
    tab_readings,
    recording_readings,
)


def readings(screens: Screens) -> list[Reading]:
    """Every figure in every place."""
    return [reading for source in SOURCES for reading in source(screens)]


def by_figure(found: Iterable[Reading]) -> dict[tuple[str, str], list[Reading]]:
    """Readings of the same figure together, in order of appearance."""
    groups: dict[tuple[str, str], list[Reading]] = defaultdict(list)
    for reading in found:
        groups[reading.of, reading.figure].append(reading)
    return dict(groups)


def differing(group: Sequence[Reading]) -> bool:
    """Whether two places differ by more than rounding."""
    return any(not one.agrees_with(other) for number, one in enumerate(group) for other in group[:number])


def table(found: Iterable[Reading]) -> str:
    """All figures as text; those that differ are marked."""
    lines = []
    for (of, figure), group in by_figure(found).items():
        lines.append(f"{'DIFFERS' if differing(group) else 'ok':8}{of} · {figure}")
        lines += [f"{'':10}{_shown(reading.value):>20}  {reading.place}" for reading in group]
    return "\n".join(lines)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}".replace(",", " ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description="Every figure of a run in all places where it stands.")
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--console", type=Path, help="what the run printed")
    parser.add_argument("--summary", type=Path, help="the summary that --json printed")
    chosen = parser.parse_args(arguments)
    if not (chosen.run / "plugins" / "tbmem" / "monitor.jsonl").is_file():
        print(f"consistency: {chosen.run} has no plugins/tbmem/monitor.jsonl: name a run's folder", file=sys.stderr)
        return 2
    screens = Screens(
        chosen.run.resolve(),
        chosen.console.read_text() if chosen.console else "",
        json.loads(chosen.summary.read_text()) if chosen.summary else {},
    )
    found = readings(screens)
    print(table(found))
    wrong = [name for name, group in by_figure(found).items() if differing(group)]
    places = len({reading.place for reading in found})
    print(f"\n{len(by_figure(found))} figures in {places} places, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
