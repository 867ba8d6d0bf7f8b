"""Files of every kind that tbmem reads, and damaged ones made of them; for ``attack.py``."""

from __future__ import annotations

import copy
import gzip
import io
import json
import pickle
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

PROJECT = Path(__file__).parent.parent
MOST_BYTES = 2 << 20
"""Files of a corpus that are larger are left out: they would take the time of hundreds of small ones."""

PROGRAM = """
import sys, torch, tbmem
folder = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters())
kept = []
def step():
    model(torch.randn(16, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
settings = ["patterns.patience=20", "evidence.confirm_after=10", "profiling.repeat=1", "profiling.active=1"]
sections = {"run": {"logdir": folder, "name": "run"}, "output": {"console": False}}
with tbmem.MemoryCallback(None, settings, **sections) as memory:
    memory.watch(model, optimizer)
    for _ in range(80):
        step()
        kept.append(torch.randn(256, 256))
        memory.step()
with tbmem.record("small", logdir=folder):
    torch.nn.Linear(4, 4)(torch.randn(2, 4)).sum().backward()
"""
FACTORY = """
import torch
def make():
    return torch.nn.Linear(8, 8), torch.randn(2, 8), lambda output, batch: output.square().mean()
"""


@dataclass(frozen=True)
class Victim:
    """A sound file, and where it lies in a log folder."""

    kind: str
    place: str
    """Path in a log folder, where readers expect it."""
    data: bytes
    beside: tuple[tuple[str, bytes], ...] = ()
    """Sound files that are read together with it."""


def make_victims(folder: Path, corpus: Path | None) -> list[Victim]:
    """Run a short program and the commands that write files; a corpus adds real recordings."""
    _run(["-c", PROGRAM, str(folder)])
    run, small = folder / "run", folder / "small"
    trace, tiny = next(run.glob("*.pt.trace.json.gz")), next(small.glob("*.pt.trace.json.gz"))
    log = run / "plugins/tbmem/monitor.jsonl"
    snapshot, baseline, factory = (folder / name for name in ("small.pickle", "baseline.json", "factory.py"))
    factory.write_text(FACTORY)
    _run(["-m", "tbmem", "export", str(tiny), "--to", "memory_viz", "--out", str(snapshot)])
    _run(["-m", "tbmem", "check", str(run), "--baseline", str(baseline), "--update-baseline"])
    _run(["-m", "tbmem", "estimate", f"{factory}:make", "--out", str(folder / "estimates")])
    (estimate,) = (folder / "estimates").rglob("*.estimate.json")
    (timeline,) = (folder / "estimates").rglob("*.tbmem.npz")
    book = next(run.glob("*.addresses.npz"))
    rules = b"categories: [{label: Vision, words: [patch_embed, vit], category: ACTIVATION}]\n"
    logs = (("run/plugins/tbmem/monitor.jsonl", log.read_bytes()),)
    found = [
        Victim("trace", "run/w.pt.trace.json", gzip.decompress(tiny.read_bytes())),
        Victim("trace.gz", "run/w.pt.trace.json.gz", trace.read_bytes()),
        Victim("snapshot", "run/w.1.snapshot.pickle", snapshot.read_bytes()),
        Victim("timeline", "run/w.tbmem.npz", timeline.read_bytes()),
        Victim("log", *logs[0]),
        Victim("book", "run/w.addresses.npz", book.read_bytes(), (("run/w.pt.trace.json.gz", trace.read_bytes()),)),
        Victim("baseline", "baseline.json", baseline.read_bytes(), logs),
        Victim("estimate", "run/w.estimate.json", estimate.read_bytes(), (("run/w.tbmem.npz", timeline.read_bytes()),)),
        Victim("evidence", "run/plugins/tbmem/evidence-1.json", _first(log.parent.glob("evidence-*.json")), logs),
        Victim("events", "run/events.out.tfevents.1.host.1.0", _first(run.glob("events.*")), logs),
        Victim("config", "config.yaml", (PROJECT / "configs/default.yaml").read_bytes()),
        Victim("rules", "rules.yaml", rules, (("run/w.1.snapshot.pickle", snapshot.read_bytes()),)),
        Victim("model", "model/config.json", _model_config()),
    ]
    return found + [victim for victim in _of_corpus(corpus) if len(victim.data) <= MOST_BYTES]


def _run(words: list[str]) -> None:
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"a sound file could not be made: {' '.join(words[:3])}\n{ran.stderr}")


def _first(paths: Iterator[Path]) -> bytes:
    return next(paths).read_bytes()


def _model_config() -> bytes:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return json.dumps({"model_type": "llama", "vocab_size": 128, "max_position_embeddings": 64, **sizes}).encode()


def _of_corpus(corpus: Path | None) -> Iterator[Victim]:
    for path in sorted(corpus.glob("*/*")) if corpus is not None else ():
        if path.name.endswith((".pickle", ".pkl")):
            yield Victim("snapshot", "run/c.pickle", path.read_bytes())
        elif path.name.endswith(".json.gz"):
            yield Victim("trace.gz", "run/c.pt.trace.json.gz", path.read_bytes())


def truncated(data: bytes, chance: random.Random) -> bytes:
    """The beginning of a file, of any length."""
    return data[: chance.randrange(len(data) or 1)]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, removed, doubled or swapped, one to eight times."""
    changed = bytearray(data or b"\0")
    for _ in range(chance.randint(1, 8)):
        at, length = chance.randrange(len(changed) or 1), chance.choice((1, 1, 1, 2, 8, 64, 1024))
        part = changed[at : at + length]
        changed[at : at + length] = chance.choice(
            (
                chance.randbytes(len(part)),
                bytes([byte ^ (1 << chance.randrange(8)) for byte in part]),
                b"",
                part * 2,
                b"\0" * len(part),
                b"\xff" * len(part),
                part[::-1],
                chance.choice((b"-", b"9" * 40, b"{", b"]", b'"', b"\\", b"\n", b"null", b"NaN", b"1e999", b"\x80")),
            )
        )
    return bytes(changed)


ODD: tuple[Any, ...] = (
    *(None, True, "", "x", "\0", "\ud800", "<b>", [], {}, [[]], {"a": {}}, -1, 0, 1.5, 2**31, 2**63, 2**64, -(2**63)),
    *(
        10**30,
        10**400,
        1e308,
        float("nan"),
        float("inf"),
        -float("inf"),
        "1e5",
        "9" * 5000,
        "../../etc/passwd",
        "cuda:99",
    ),
)
"""Values that a field does not expect."""


def odd_tree(tree: Any, chance: random.Random) -> Any:
    """A copy of plain values in which one to four, anywhere, are odd, missing, doubled or of another field."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.randint(1, 4)):
        places = list(_places(tree, chance))
        if not places:
            return _odd(chance)
        holder, key = chance.choice(places)
        how = chance.randrange(5)
        if how == 0:
            del holder[key]
        elif how == 1:
            other, where = chance.choice(places)
            holder[key] = copy.deepcopy(other[where]) if other is not holder else _odd(chance)
        elif how == 2 and isinstance(holder, list):
            holder.insert(chance.randrange(len(holder) + 1), holder[key])
        elif how == 3 and isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * chance.choice((-1, 2, 10**6, 10**18)) + chance.randint(-3, 3)
        else:
            holder[key] = _odd(chance)
    return tree


def _odd(chance: random.Random) -> Any:
    """An odd value of its own, which may be changed."""
    return copy.deepcopy(chance.choice(ODD))


def _places(tree: Any, chance: random.Random, most: int = 400) -> Iterator[tuple[Any, Any]]:
    """Places in nested lists and dictionaries, at most so many: of long lists a sample."""
    waiting = [tree]
    while waiting and most > 0:
        node = waiting.pop(chance.randrange(len(waiting)))
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        for key in keys if len(keys) <= 12 else chance.sample(keys, 12):
            most -= 1
            yield node, key
            waiting.append(node[key])


def odd_json(data: bytes, chance: random.Random) -> bytes:
    """JSON with odd values."""
    return json.dumps(odd_tree(json.loads(data), chance)).encode("utf-8", "surrogatepass")


def odd_log(data: bytes, chance: random.Random) -> bytes:
    """A log in which records have odd values, are in another order, or come twice."""
    lines = data.splitlines()
    for _ in range(chance.randint(1, 3)):
        at = 0 if chance.random() < 0.3 else chance.randrange(len(lines))
        lines[at] = odd_json(lines[at], chance)
    if chance.random() < 0.2:
        chance.shuffle(lines)
    if chance.random() < 0.2:
        lines *= 2
    return b"\n".join(lines) + b"\n"


def odd_pickle(data: bytes, chance: random.Random) -> bytes:
    """A pickle of plain data with odd values."""
    return pickle.dumps(odd_tree(pickle.loads(data), chance), protocol=chance.choice((0, 2, 4, 5)))


def odd_yaml(data: bytes, chance: random.Random) -> bytes:
    """YAML with odd values."""
    text = yaml.safe_dump(odd_tree(yaml.safe_load(data), chance), allow_unicode=True)
    return text.encode("utf-8", "surrogatepass")


def odd_npz(data: bytes, chance: random.Random) -> bytes:
    """An archive whose header has odd values, or one array other values, another type or shape, or is missing."""
    with np.load(io.BytesIO(data)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    name = chance.choice(list(arrays))
    if name == "header" or chance.random() < 0.3:
        arrays["header"] = _odd_header(arrays["header"], chance)
    else:
        arrays = _odd_array(arrays, name, chance)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return packed.getvalue()


def _odd_header(header: Any, chance: random.Random) -> Any:
    if header.dtype == np.uint8:
        return np.frombuffer(odd_json(header.tobytes(), chance), np.uint8)
    return np.array(odd_json(str(header).encode(), chance).decode("utf-8", "replace"))


def _odd_array(arrays: dict[str, Any], name: str, chance: random.Random) -> dict[str, Any]:
    array = arrays[name]
    ways: list[Callable[[], Any]] = [
        lambda: array[: len(array) // 2] if array.ndim else array,
        lambda: array.astype(np.float32),
        lambda: array.astype("U8"),
        lambda: np.zeros((3, 3), np.int64),
        lambda: np.full(array.shape, chance.choice((-1, -(2**62), 2**62, 7)), np.int64),
        lambda: np.array(chance.choice(("", "x", float("nan")))),
        lambda: np.concatenate([array, array]) if array.ndim else array,
        lambda: np.random.default_rng(chance.getrandbits(32)).permutation(array) if array.ndim else array,
    ]
    if chance.random() < 0.15:
        return {key: value for key, value in arrays.items() if key != name}
    return {**arrays, name: chance.choice(ways)()}


STRUCTURE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "trace": odd_json,
    "trace.gz": lambda data, chance: gzip.compress(odd_json(gzip.decompress(data), chance), 1, mtime=0),
    "snapshot": odd_pickle,
    "timeline": odd_npz,
    "book": odd_npz,
    "log": odd_log,
    "baseline": odd_json,
    "estimate": odd_json,
    "evidence": odd_json,
    "config": odd_yaml,
    "rules": odd_yaml,
    "model": odd_json,
}
"""Damage that keeps a file's format, by its kind."""


def damaged(victim: Victim, how: str, chance: random.Random) -> bytes:
    """A victim's content, ``truncated``, ``bytes`` or ``structure``; of gzip also what is packed."""
    if how == "structure" and victim.kind in STRUCTURE:
        return STRUCTURE[victim.kind](victim.data, chance)
    change = truncated if how == "truncated" else mutated
    if victim.data.startswith(b"\x1f\x8b") and chance.random() < 0.6:
        return gzip.compress(change(gzip.decompress(victim.data), chance), 1, mtime=0)
    if victim.data.startswith(b"PK") and chance.random() < 0.5:
        return _changed_member(victim.data, change, chance)
    return change(victim.data, chance)


def _changed_member(data: bytes, change: Callable[[bytes, random.Random], bytes], chance: random.Random) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w") as new:
        names = old.namelist()
        chosen = chance.choice(names)
        for name in names:
            content = old.read(name)
            new.writestr(name, change(content, chance) if name == chosen else content)
    return packed.getvalue()
