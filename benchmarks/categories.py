"""How much of a recording's memory has a category, and how often an inferred one is right.

    python benchmarks/categories.py [--simulated FOLDER --python PYTHON] [SNAPSHOT ...]

Without arguments it reads the corpus. With ``--simulated`` it reads the snapshots of ``category_trainings.py`` in that
folder, and makes the missing ones on a simulated GPU with PYTHON, whose torch must be a CUDA build. A SNAPSHOT's truth
is known by the beginning of its name (``TRUTHS``). The first share of UNKNOWN is without what is inferred from sizes of
older blocks and from shapes, the second with it. Of the bytes so inferred, ``by category`` compares the sum of each
category, as screens show it, with the truth; ``by block`` compares each block, where the truth is known of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import heading, table

from tbmem.errors import TbmemError
from tbmem.model.category import Basis, Category
from tbmem.offline.analyze import analyze
from tbmem.units import MIB

PROJECT = Path(__file__).parent.parent
CORPUS = Path(os.environ.get("TBMEM_CORPUS", PROJECT.parent / "shared" / "corpus"))
DEVELOPED_ON = (
    *("decoder_adamw", "convnet_momentum", "lora", "inference"),
    *("adam_gradients_kept", "sgd_plain", "freed_at_the_end", "inference_with_cache"),
)
HELD_OUT = (
    *("adam_amp", "gan", "momentum_gradients_kept", "accumulation"),
    *("teacher_and_student", "averaged_weights", "bf16_adam", "inference_convnet"),
)
HELD_OUT_AFTER = (
    *("mixture_of_experts", "lstm_rmsprop", "head_on_frozen_encoder", "encoder_adagrad_kept"),
    *("two_decoders_alternate", "inference_half_after_training", "generation_with_caches_of_layers", "data_on_the_gpu"),
)
"""Written after the results of ``HELD_OUT`` had been seen, and one of its faults mended."""
Bytes = Mapping[Category, int]


def decoder(width: int, layers: int, hidden: int, words: int, element: int = 4) -> int:
    """Bytes of the decoder of Stanford's CS336, which is Llama's: gated MLP, no biases, output layer not tied."""
    block = 4 * width * width + 3 * width * hidden + 2 * width
    return element * (2 * words * width + layers * block + width)


def copies(size: int, gradients: int = 0, states: int = 0) -> Bytes:
    return {
        Category.PARAMETER: size,
        Category.GRADIENT: gradients * size,
        Category.OPTIMIZER_STATE: states * size,
    }


_SMALL, _MEDIUM = decoder(768, 12, 3072, 10_000), decoder(1024, 24, 4096, 10_000)
TRUTHS: Mapping[str, Bytes] = {
    "Charran78": copies(90_861_056),  # an encoder of six layers of 384
    "LfieLike": copies(decoder(4096, 32, 11_008, 32_000, element=2)),
    "MAGMA27": copies(_SMALL, gradients=1),
    "silmont2000": copies(_SMALL),
    "kkaitlyn": copies(decoder(2560, 32, 10_240, 10_000)),
    **{f"Wedsonlin__{kind}{n}_inference": copies(_MEDIUM) for kind in ("", "medium_") for n in (128, 256, 512, 1024)},
    **{
        f"Wedsonlin__{kind}{n}_training": copies(_MEDIUM, states=2)
        for kind in ("", "medium_")
        for n in (128, 256, 512, 1024)
    },
    "AMD-AGI__h100__Qwen": copies(2 * 463_987_712),
    "AMD-AGI__h100__gaunernst": copies(2 * 28_795_194),
    "AMD-AGI__mi300__gaunernst": copies(2 * 28_795_194),
}
"""Bytes older than the recording, by the code that was recorded or the published model."""


@dataclass(frozen=True)
class Figures:
    """Of a recording's main device."""

    name: str
    peak: int
    unknown_before: int  # at the peak
    unknown: int
    inferred: Bytes  # older than the recording, by sizes or shapes
    by_category: float | None
    by_block: float | None

    @property
    def row(self) -> list[str]:
        """Cells of the table."""
        shares = (f"{100 * part / max(self.peak, 1):.1f} %" for part in (self.unknown_before, self.unknown))
        inferred = f"{sum(self.inferred.values()) / MIB:,.0f}"
        right = ("" if value is None else f"{value:.3f}" for value in (self.by_category, self.by_block))
        return [self.name, f"{self.peak / MIB:,.0f}", *shares, inferred, *right]


def measure(path: Path) -> Figures:
    analysis = analyze(path)
    timeline, device, rows = analysis.timeline, analysis.main, analysis.timeline.rows
    older = (rows.device == device.number) & (rows.alloc_event < 0) & (rows.stack < 0)
    inferred = np.flatnonzero(older & (rows.basis == Basis.INFERRED))
    alive = timeline.alive_at(device.number, device.peak.event)
    unknown = sum(share.bytes for share in device.by_category if share.name == Category.UNKNOWN.name)
    sums = {one: int(rows.bytes[inferred][rows.category[inferred] == one].sum()) for one in Category}
    truth = next((truth for name, truth in TRUTHS.items() if path.name.startswith(name)), None)
    by_block = None
    blocks = Path(f"{path}.json")
    if blocks.exists():
        of_address = {int(address): Category(number) for address, number in json.loads(blocks.read_text()).items()}
        was = np.array([of_address.get(int(address), Category.UNKNOWN) for address in rows.address])
        truth = {one: int(rows.bytes[older][was[older] == one].sum()) for one in Category if one}
        right = rows.bytes[inferred][rows.category[inferred] == was[inferred]].sum()
        by_block = float(right / rows.bytes[inferred].sum()) if len(inferred) else None
    total = sum(sums.values())
    right_sums = (
        None if truth is None or not total else sum(min(sums[one], size) for one, size in truth.items()) / total
    )
    return Figures(
        name=path.name.partition(".")[0],
        peak=device.peak.bytes,
        unknown_before=unknown + int(rows.bytes[np.intersect1d(alive, inferred)].sum()),
        unknown=unknown,
        inferred=sums,
        by_category=right_sums,
        by_block=by_block,
    )


def simulated(folder: Path, python: str, names: Sequence[str]) -> list[Path]:
    """Snapshots of the trainings, made if they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    run = [python, str(PROJECT / "benchmarks" / "on_simulated_gpu.py"), python]
    for name in names:
        if not (folder / f"{name}.pickle").exists():
            training = str(PROJECT / "benchmarks" / "category_trainings.py")
            subprocess.run([*run, training, name, str(folder / f"{name}.pickle")], check=True)
    return [folder / f"{name}.pickle" for name in names]


def report(title: str, paths: Sequence[Path]) -> None:
    found = []
    for path in paths:
        try:
            found.append(measure(path))
        except TbmemError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
    head = ("recording", "peak, MiB", "UNKNOWN before", "UNKNOWN", "inferred, MiB", "right by category", "by block")
    print(f"### {title}\n\n{table(head, [one.row for one in found])}\n")
    before, after = (
        statistics.median(100 * part / max(peak, 1) for part, peak in pairs)
        for pairs in ([(one.unknown_before, one.peak) for one in found], [(one.unknown, one.peak) for one in found])
    )
    means = []
    for word in ("by_category", "by_block"):
        known = [(getattr(one, word), sum(one.inferred.values())) for one in found if getattr(one, word) is not None]
        if known:
            pooled = sum(share * size for share, size in known) / sum(size for _, size in known)
            means.append(f"right {word.replace('_', ' ')}: {pooled:.3f} of all bytes, least {min(known)[0]:.3f}")
    print(f"UNKNOWN in the median {before:.1f} % before, {after:.1f} % after. {'; '.join(means)}\n")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("snapshots", nargs="*", type=Path)
    arguments.add_argument("--simulated", type=Path, metavar="FOLDER")
    arguments.add_argument("--python", default=sys.executable)
    given = arguments.parse_args()
    print(heading("Categories of what is older than a recording"))
    if given.snapshots:
        report("Given snapshots", given.snapshots)
    elif CORPUS.exists():
        report("Corpus", sorted((*CORPUS.glob("snapshots/*.pickle"), *CORPUS.glob("traces/*.json.gz"))))
    if given.simulated:
        report("Simulated, developed on", simulated(given.simulated, given.python, DEVELOPED_ON))
        report("Simulated, held out", simulated(given.simulated, given.python, HELD_OUT))
        report("Simulated, held out a second time", simulated(given.simulated, given.python, HELD_OUT_AFTER))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
