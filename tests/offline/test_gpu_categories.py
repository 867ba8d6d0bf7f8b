"""Categories of a training on a GPU that is played by hand: snapshot and trace of it, joined with its address book."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tbmem.analysis.recordings.result import Analysis, Share
from tbmem.model.address_book import AddressBook, StorageNote
from tbmem.model.category import Category
from tbmem.offline.analyze import analyze

SIZES = {"body.0.weight": 4_000_004, "body.1.weight": 3_000_000, "head.bias": 1000}
STEPS = 3
TORCH = "/env/lib/python3.11/site-packages/torch"
FORWARD = [
    {"filename": "/home/me/model.py", "line": 5, "name": "forward"},
    {"filename": f"{TORCH}/nn/modules/module.py", "line": 1, "name": "_call_impl"},
]
OPTIMIZER = [{"filename": f"{TORCH}/optim/adam.py", "line": 9, "name": "_init_group"}]
LOADER = [{"filename": "/home/me/train.py", "line": 3, "name": "main"}]


def rounded(size: int) -> int:
    return -(-size // 512) * 512


class Gpu:
    """A caching allocator that gives addresses out again, its log, and notes on what lies where."""

    def __init__(self) -> None:
        self.us, self.blocks, self.free_at = 1_795_000_000_000_000, {}, {}
        self.log: list[dict[str, Any]] = []
        self.steps: list[tuple[int, int]] = []
        self.notes: list[StorageNote] = []
        self.top = 0x7F00_0000_0000
        self.recording = False

    def alloc(self, size: int, frames: list[dict[str, Any]] | None = None) -> int:
        spare = self.free_at.setdefault(rounded(size), [])
        address = spare.pop() if spare else self.top
        self.top = max(self.top, address + rounded(size))
        self.blocks[address] = (size, frames or [])
        self._event("alloc", address, size, frames or [])
        return address

    def free(self, address: int) -> None:
        size, _ = self.blocks.pop(address)
        self.free_at[rounded(size)].append(address)
        self._event("free_requested", address, size, [])
        self._event("free_completed", address, size, [])

    def note(self, address: int, category: Category, name: str) -> None:
        self.us += 7
        # a storage is as large as it was asked for
        size = self.blocks[address][0]
        self.notes.append(StorageNote(self.us * 1000, "cuda:0", address, size, category, name))

    def _event(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        self.us += 20
        total = sum(rounded(size) for size, _ in self.blocks.values())
        if self.recording:
            event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.us}
            self.log.append({**event, "frames": frames, "total": total})

    def play(self) -> None:
        """Weights, then steps of forward, backward and optimizer; the state is made in the first."""
        weights = {name: self.alloc(size) for name, size in SIZES.items()}
        for number in range(3):
            # holes of sizes that come again
            self.free(self.alloc([2_000_000, 4_000_004, 1000][number]))
        self.recording = True
        state: dict[str, int] = {}
        for _ in range(STEPS):
            begin = self.us
            for name, address in weights.items():
                self.note(address, Category.PARAMETER, name)
            batch = self.alloc(2_000_000, LOADER)
            saved = []
            for layer in ("body.0", "body.1"):
                scratch = self.alloc(4_000_004, FORWARD)
                saved.append(self.alloc(5_000_000, FORWARD))
                self.note(saved[-1], Category.ACTIVATION, layer)
                self.free(scratch)
            gradients = {}
            for name, size in reversed(SIZES.items()):
                gradients[name] = self.alloc(size)
                if saved:
                    self.free(saved.pop())
            for name, size in SIZES.items():
                if name not in state:
                    state[name] = self.alloc(size, OPTIMIZER)
            for name in SIZES:
                self.note(gradients[name], Category.GRADIENT, name)
                self.note(state[name], Category.OPTIMIZER_STATE, f"{name}.exp_avg")
            for address in (*gradients.values(), batch):
                self.free(address)
            self.steps.append((begin, self.us))

    def write_snapshot(self, path: Path) -> Path:
        segments = [
            {
                "device": 0,
                "address": address,
                "total_size": rounded(size),
                "stream": 0,
                "segment_type": "large",
                "blocks": [
                    {"size": rounded(size), "requested_size": size, "state": "active_allocated", "frames": frames}
                ],
            }
            for address, (size, frames) in self.blocks.items()
        ]
        marks = [
            {"name": f"ProfilerStep#{number}", "device": 0, "stage": stage, "time_us": at}
            for number, step in enumerate(self.steps)
            for stage, at in zip(("START", "END"), step, strict=True)
        ]
        data = {"segments": segments, "device_traces": [self.log], "external_annotations": marks}
        path.write_bytes(pickle.dumps(data, 4))
        return path

    def write_trace(self, path: Path) -> Path:
        events: list[dict[str, Any]] = [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": begin, "dur": end - begin}
            for number, (begin, end) in enumerate(self.steps)
        ]
        for one in self.log:
            if one["action"] == "free_requested":
                continue
            size = rounded(one["size"]) * (1 if one["action"] == "alloc" else -1)
            arguments = {"Addr": one["addr"], "Bytes": size, "Device Type": 1, "Device Id": 0}
            arguments |= {"Total Allocated": one["total"], "Total Reserved": 64 << 20}
            events.append({"ph": "i", "name": "[memory]", "ts": one["time_us"], "args": arguments})
            if one["frames"]:
                word = {id(FORWARD): "nn.Module: Net_0", id(OPTIMIZER): "torch/optim/adam.py(9): step"}
                name = word.get(id(one["frames"]), "train.py(3): main")
                number = {"Python parent id": None, "Python id": len(events)}
                events.append(
                    {"ph": "X", "cat": "python_function", "name": name, "ts": one["time_us"], "dur": 1, "args": number}
                )
        path.write_text(json.dumps({"traceEvents": [{**one, "pid": 1, "tid": 1} for one in events]}))
        return path


@pytest.fixture
def gpu() -> Gpu:
    gpu = Gpu()
    gpu.play()
    return gpu


@pytest.fixture
def book(gpu: Gpu) -> AddressBook:
    return AddressBook.from_notes(gpu.notes)


def _shares(analysis: Analysis) -> dict[str, Share]:
    return {share.name: share for share in analysis.main.by_category}


def test_a_snapshots_categories_are_exact_to_the_byte(gpu: Gpu, book: AddressBook, tmp_path: Path) -> None:
    analysis = analyze(gpu.write_snapshot(tmp_path / "s.pickle"), book=book)

    shares, size = _shares(analysis), sum(SIZES.values())
    for name in ("PARAMETER", "OPTIMIZER_STATE", "GRADIENT"):
        assert shares[name].max_bytes == size
        assert shares[name].basis == "known"
    assert shares["ACTIVATION"].max_bytes == 10_000_000
    assert shares["INPUT"].max_bytes == 2_000_000
    assert shares["TEMPORARY"].max_bytes == 4_000_004
    assert "UNKNOWN" not in shares
    # and the parameters have their names
    assert {one.name for one in analysis.main.top} > set(SIZES)
    assert {share.name: share.bytes for share in analysis.main.by_module}["head"] >= 2000


def test_a_traces_categories_are_exact_but_for_the_allocators_rounding(
    gpu: Gpu, book: AddressBook, tmp_path: Path
) -> None:
    analysis = analyze(gpu.write_trace(tmp_path / "t.pt.trace.json"), book=book)

    # then the weights, of which no event speaks, are taken from the book into what the totals say was there
    shares, size = _shares(analysis), sum(map(rounded, SIZES.values()))
    for name in ("PARAMETER", "OPTIMIZER_STATE", "GRADIENT"):
        assert shares[name].max_bytes == size
        assert shares[name].basis == "known"
    assert shares["ACTIVATION"].max_bytes == 2 * rounded(5_000_000)
    assert shares["UNKNOWN"].bytes == 0 if "UNKNOWN" in shares else True
    assert analysis.main.peak.bytes == max(one["total"] for one in gpu.log)
    assert analysis.main.base_bytes == size


def test_state_on_the_cpu_is_counted_there(gpu: Gpu, tmp_path: Path) -> None:
    # given the same training, its optimizer state lying on the CPU
    moved = [
        note._replace(device="cpu", address=note.address + 1) if note.category is Category.OPTIMIZER_STATE else note
        for note in gpu.notes
    ]

    analysis = analyze(gpu.write_snapshot(tmp_path / "s.pickle"), book=AddressBook.from_notes(moved))

    by_device = {one.name: {share.name: share.bytes for share in one.by_category} for one in analysis.devices}
    assert by_device["cpu"] == {"OPTIMIZER_STATE": sum(SIZES.values())}
    assert by_device["cuda:0"].get("OPTIMIZER_STATE", 0) == 0
