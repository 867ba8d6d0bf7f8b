"""Attacks on what reads files: every command in this process, and the Memory tab's routes; a worker of ``attack.py``.

``python benchmarks/attack_readers.py FOLDER SEED BYTES`` reads lines ``{"kind": …, "number": …}``. It
writes a line before and after each probe, so that its parent knows what was running when it died or hung.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

from attack_files import Victim, damaged
from attack_hostile import MARKER, NAME, SPECIAL, colliding, hostile_pickles, named_files, nested
from attack_probes import CRASH, Judge, Probe, brief

MEMORY = 1 << 30
"""Bytes that a probe may add to its process: all files here are small."""
LOG = "plugins/tbmem/monitor.jsonl"
RECORDING = (
    "timeline",
    "reserved",
    "range",
    "events",
    "state",
    "stack",
    "tensors",
    "operators",
    "peak",
    "segments",
    "steps",
)
OF_RUN = ("overview", "live", "ranks", "remedies", "estimate", "prediction")
FORMATS = ("perfetto", "speedscope", "csv", "json", "memory_viz")
HERE = "/data/plugin/tbmem"


class Readers:
    """Makes the files of an attack in a folder of their own, and probes the readers with them."""

    def __init__(self, victims: list[Victim], sound: Path, seed: str) -> None:
        self._victims = victims
        self._sound = sound
        self._seed = seed

    def probes(self, kind: str, number: int, folder: Path) -> Iterator[Probe]:
        """The probes of one attack, whose files are made in ``folder``."""
        return KINDS[kind](self, number, folder, random.Random(f"{self._seed}:{kind}:{number}"))

    def sound(self, kind: str) -> bytes:
        """A file of a kind as it was written."""
        return next(victim.data for victim in self._victims if victim.kind == kind)

    def damage(self, how: str, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """A sound file is truncated, or its bytes or values change."""
        victim = self._victims[number % len(self._victims)]
        for place, data in victim.beside:
            write(folder, place, data)
        path = write(folder, victim.place, damaged(victim, how, chance))
        yield from self.readings(victim.kind, path, folder, chance, most=3)

    def readings(self, kind: str, path: Path, folder: Path, chance: random.Random, most: int) -> Iterator[Probe]:
        """Probes of what reads a file at its place in a log folder, at most so many of them."""
        run = path.relative_to(folder).parts[0]
        if kind == "baseline":
            commands = [
                ("check", f"{folder}/run", "--baseline", str(path)),
                ("check", f"{folder}/run", "--baseline", str(path), "--json"),
            ]
            return self._chosen([Probe(words) for words in commands], chance, most)
        if kind == "config":
            commands = [("config", "-c", str(path)), ("config", "-c", str(path), "--json")]
            return self._chosen([Probe(words) for words in commands], chance, most)
        if kind == "rules":
            recording = f"{folder}/run/w.1.snapshot.pickle"
            return iter([Probe(("analyze", recording, "--json", "--rules", str(path)))])
        if kind == "model":
            # each starts a process of its own
            return iter(
                [Probe(("estimate", str(path.parent), "--no-alternatives", "--json"))] * (chance.random() < 0.2)
            )
        if kind in ("log", "evidence", "events"):
            return self._chosen(self._of_log(folder / run, folder), chance, most + 2)
        return self._chosen(self._of_recording(path, folder, run, chance), chance, most + 1)

    @staticmethod
    def _chosen(probes: list[Probe], chance: random.Random, most: int) -> Iterator[Probe]:
        return iter(chance.sample(probes, min(most, len(probes))))

    def _of_log(self, run: Path, logdir: Path) -> list[Probe]:
        page = logdir.with_name("page.html")
        commands: list[tuple[str, ...]] = [
            ("watch", str(run), "--once"),
            ("watch", str(logdir), "--once", "--json", "--all"),
            ("check", str(run), "--no-leak", "--max-peak", "10GiB", "--max-growth", "1MiB/step"),
            ("check", str(run), "--no-leak", "--json"),
            ("report", str(run), "--json"),
            ("compare", str(run), str(self._sound / "run")),
            ("compare", str(self._sound / "run"), str(run), "--json"),
        ]
        pages = [Probe(("report", str(run), "--html", str(page)), page=page)]
        pages += [Probe(("report", str(logdir), "--html", str(page)), page=page)]
        views = [*(question(view, run=run.name) for view in OF_RUN), question("index"), question("overview")]
        views.append(question("compare", before=run.name, after=run.name))
        return [*map(Probe, commands), *pages, *views]

    def _of_recording(self, path: Path, logdir: Path, run: str, chance: random.Random) -> list[Probe]:
        page, out = logdir.with_name("page.html"), logdir.with_name("exported")
        file = path.relative_to(logdir / run).as_posix()
        commands: list[tuple[str, ...]] = [
            ("analyze", str(path), "--json"),
            ("analyze", str(path), "--what-if", "expandable_segments:True"),
            ("compare", str(path), str(self._sound / "small.pickle"), "--json"),
            ("compare", str(self._sound / "small.pickle"), str(path)),
            ("export", str(path), "--to", chance.choice(FORMATS), "--out", str(out)),
        ]
        more = {"at": str(chance.random() * 100), "row": "0", "axis": chance.choice(("event", "time"))}
        views = [question(view, run=run, file=file, **more) for view in RECORDING]
        views += [question("overview", run=run), question("sides", run=run, file=file), question("estimate", run=run)]
        return [*map(Probe, commands), Probe(("report", str(path), "--html", str(page)), page=page), *views]

    def made(
        self,
        files: Callable[[], list[tuple[str, bytes]]],
        number: int,
        folder: Path,
        chance: random.Random,
        most: int = 3,
    ) -> Iterator[Probe]:
        """One of the files that are made to do harm, all of them in turn."""
        cases = files()
        place, data = cases[number % len(cases)]
        beside = {"baseline.json": "log", "rules.yaml": "snapshot"}
        for name, kind in beside.items():
            if place == name:
                write(folder, "run/w.1.snapshot.pickle" if kind == "snapshot" else f"run/{LOG}", self.sound(kind))
        path = write(folder, place, data)
        yield from self.readings(kind_of(place), path, folder, chance, most)

    def pickles(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """Pickles that call something."""
        marker = folder.parent / MARKER
        marker.unlink(missing_ok=True)
        yield from self.made(
            lambda: [("run/w.pickle", data) for data in hostile_pickles(folder.parent)], number, folder, chance
        )
        if marker.exists():
            raise RuntimeError("a pickle was executed")

    def bombs(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """Small files that unpack to large ones; their making would count as this process's memory."""
        made = self._sound.with_name("bombs.pickle")
        yield from self.made(_in_run(lambda: pickle.loads(made.read_bytes())), number, folder, chance)

    def devices(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """A pipe, device, socket, folder or link where a file is expected."""
        places = (
            "run/w.pickle",
            "run/w.pt.trace.json",
            f"run/{LOG}",
            "baseline.json",
            "config.yaml",
            "rules.yaml",
            "run/w.estimate.json",
            "run/w.addresses.npz",
            "run/w.tbmem.npz",
        )
        place, how = places[number % len(places)], SPECIAL[number // len(places) % len(SPECIAL)]
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if place == "baseline.json":
            write(folder, f"run/{LOG}", self.sound("log"))
        elif place in ("rules.yaml", "run/w.addresses.npz"):
            write(
                folder,
                "run/w.pickle" if place == "rules.yaml" else "run/w.pt.trace.json",
                self.sound("snapshot" if place == "rules.yaml" else "trace"),
            )
        how(path)
        kind = kind_of(place)
        if place == "run/w.addresses.npz":
            kind, path = "trace", folder / "run/w.pt.trace.json"
        if place == "rules.yaml":
            yield Probe(("analyze", f"{folder}/run/w.pickle", "--json", "--rules", str(path)))
            return
        yield from self.readings(kind, path, folder, chance, 4)

    def paths(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """Requests for files outside of the log folder."""
        self._sound_run(folder)
        write(folder.parent, "secret.pickle", b"PRIVATE-CONTENT")
        with contextlib.suppress(FileExistsError):
            (folder / "run/link.pickle").symlink_to(folder.parent / "secret.pickle")
        (folder / "outside").symlink_to("/etc")
        up = chance.choice(
            ("../", "..%2f", "%2e%2e/", "....//", "..\\", "..%5c", "%252e%252e%252f", "/", "//", "file://")
        )
        target = up * chance.randint(1, 8) + chance.choice(
            ("etc/passwd", "secret.pickle", "proc/self/environ", "etc\0passwd", "link.pickle")
        )
        name = chance.choice(("run", "outside", "..", ".", up, "run/..", "\0", ""))
        for view in chance.sample((*RECORDING, *OF_RUN), 3):
            yield question(view, run=name, file=target)
            yield question(view, run=target, file="w.pt.trace.json")
        raw = quote(target, safe="/%.\\")
        yield Probe(request=("GET", f"{HERE}/data/{raw}"))
        yield Probe(request=("GET", f"{HERE}/{raw}"))
        content = (("Content-Type", "application/octet-stream"),)
        yield Probe(request=("POST", f"{HERE}/drop?name={quote(target)}"), headers=content, body=self.sound("trace"))

    def queries(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """Random questions: all views and parameters, with values that do not fit."""
        self._sound_run(folder)
        names = (
            "run",
            "file",
            "device",
            "axis",
            "from",
            "to",
            "points",
            "largest",
            "at",
            "size",
            "row",
            "segment",
            "search",
            "sort",
            "order",
            "limit",
            "rare",
            "x",
            "before",
            "after",
            "recordings",
            "work",
            "offset",
            "after",
            "variant",
            "rank",
        )
        values = (
            "run",
            "w.pt.trace.json",
            "cpu",
            "cuda:0",
            "event",
            "time",
            "nan",
            "inf",
            "-1",
            "0",
            "1",
            "7",
            "1e400",
            "9" * 400,
            "",
            "[",
            "(",
            ".*",
            "\0",
            "\ud7ff",
            NAME,
            "-0",
            "1_0",
            "٣",
            " 1 ",
            "0x10",
            "1e5",
            "None",
            "true",
            "w.tbmem.npz",
        )
        for _ in range(12):
            view = chance.choice(
                (*RECORDING, *OF_RUN, "index", "progress", "compare", "sides", "segment", "cancel", "x")
            )
            asked = [("run", "run"), ("file", "w.pt.trace.json")] if chance.random() < 0.8 else []
            asked += [(chance.choice(names), chance.choice(values)) for _ in range(chance.randint(0, 5))]
            yield Probe(
                request=(
                    chance.choice(("GET", "GET", "GET", "POST")),
                    f"{HERE}/data/{view}?{urlencode(asked, errors='surrogatepass')}",
                )
            )

    def requests(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """Methods, headers and bodies that the page never sends."""
        self._sound_run(folder)
        routes = (
            "/drop",
            "/drop?name=x.pickle",
            "/page.js",
            "/page.css",
            "/page.js?v=x",
            "/data/index",
            "/data/",
            "/data",
            "/",
            "/nowhere",
            "/data/cancel?work=1",
        )
        headers = (
            *(("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site"), ("Content-Length", "-1")),
            *(
                ("Content-Length", "99999999999"),
                ("Content-Type", "text/html"),
                ("Content-Type", "application/octet-stream"),
            ),
            *(("Accept-Encoding", "identity"), ("Accept-Encoding", "gzip;q=x,,"), ("Range", "bytes=0-1,-9999")),
            *(
                ("If-None-Match", "*"),
                ("Host", "evil.example:99999"),
                ("Transfer-Encoding", "chunked"),
                ("X-Forwarded-For", "' OR 1=1"),
            ),
            *(("Content-Encoding", "gzip"), ("Cookie", "a" * 10_000), ("Origin", "null"), ("Origin", "http://[::1")),
        )
        for _ in range(8):
            method = chance.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "FOO"))
            body = chance.choice((b"", b"x" * 100, self.sound("snapshot"), b"\x80\x04cos\nsystem\n."))
            sent = tuple(chance.sample(headers, chance.randint(0, 4)))
            yield Probe(request=(method, HERE + chance.choice(routes)), headers=sent, body=body)

    def names(self, number: int, folder: Path, chance: random.Random) -> Iterator[Probe]:
        """Names that are markup, in pages and answers."""
        yield from self.made(lambda: named_files(self.sound), number, folder, chance, most=20)

    def _sound_run(self, folder: Path) -> None:
        write(folder, f"run/{LOG}", self.sound("log"))
        write(folder, "run/w.pt.trace.json", self.sound("trace"))
        write(folder, "run/w.tbmem.npz", self.sound("timeline"))


def write(folder: Path, place: str, data: bytes) -> Path:
    """Write a file below a folder."""
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def question(view: str, **params: str) -> Probe:
    """A request for a view's answer."""
    return Probe(request=("GET", f"{HERE}/data/{view}?{urlencode(params, errors='surrogateescape')}"))


def kind_of(place: str) -> str:
    """The kind of file that readers expect at a place."""
    names = {"baseline.json": "baseline", "config.yaml": "config", "rules.yaml": "rules", "model/config.json": "model"}
    return names.get(place, "log" if place.endswith(LOG) else "recording")


def _damage(how: str) -> Callable[[Readers, int, Path, random.Random], Iterator[Probe]]:
    return lambda readers, number, folder, chance: readers.damage(how, number, folder, chance)


def _made(
    files: Callable[[], list[tuple[str, bytes]]],
) -> Callable[[Readers, int, Path, random.Random], Iterator[Probe]]:
    cached = functools.cache(files)
    return lambda readers, number, folder, chance: readers.made(cached, number, folder, chance)


def _in_run(files: Callable[[], list[tuple[str, bytes]]]) -> Callable[[], list[tuple[str, bytes]]]:
    return lambda: [(f"run/{place}", data) for place, data in files()]


KINDS: dict[str, Callable[[Readers, int, Path, random.Random], Iterator[Probe]]] = {
    "truncated files": _damage("truncated"),
    "mutated bytes": _damage("bytes"),
    "mutated records": _damage("structure"),
    "hostile pickles": Readers.pickles,
    "bombs": Readers.bombs,
    "colliding keys": _made(_in_run(colliding)),
    "deep nesting": _made(nested),
    "pipes, devices, links": Readers.devices,
    "names in pages": Readers.names,
    "paths to the tab": Readers.paths,
    "queries of the tab": Readers.queries,
    "methods and headers": Readers.requests,
}


def serve(folder: Path, seed: str, memory: int) -> None:
    """Answer lines of standard input until it ends."""
    victims: list[Victim] = pickle.loads((folder / "victims.pickle").read_bytes())
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    warnings.simplefilter("ignore")
    readers, judge = Readers(victims, folder / "sound", seed), Judge()
    _load_readers()
    limit = _address_space() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        asked = json.loads(line)
        place = Path(tempfile.mkdtemp(dir=folder))
        (place / "logs").mkdir()
        try:
            for probe in readers.probes(asked["kind"], asked["number"], place / "logs"):
                print(json.dumps({"probe": str(probe)}), file=answers)
                outcome, detail = judge.outcome(probe, place / "logs")
                print(json.dumps({"outcome": outcome, "detail": detail}), file=answers)
        except Exception as error:  # the files of the attack could not be made, or one was executed
            print(json.dumps({"probe": "making the attack", "outcome": CRASH, "detail": brief(error)}), file=answers)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(json.dumps({"done": True}), file=answers)


def _load_readers() -> None:
    """Import what commands import when they are called: it is not a probe's memory."""
    import tbmem.cli.main as cli
    import tbmem.offline.reports.pages
    import tbmem.plugin.plugin  # noqa: F401

    for name in ("analyze", "check", "compare", "config", "export", "report", "watch"):
        cli.command_named(name)
    with contextlib.suppress(ImportError):
        # an estimate imports it in a process of its own, which has the same limit
        importlib.import_module("transformers.models.llama.modeling_llama")


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
