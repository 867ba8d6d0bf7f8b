"""GPUs by name, with memory, compute capability and multiprocessors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tbmem.errors import UsageError, did_you_mean
from tbmem.units import GIB, MIB, parse_bytes


class Compute(NamedTuple):
    """What decides which kernels a GPU runs, and the memory they take."""

    capability: tuple[int, int]
    multiprocessors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU for estimates and rehearsals."""

    name: str
    capability: tuple[int, int]
    total: int  # bytes, as torch reports them: less than the name says, since the driver reserves some
    context: int
    multiprocessors: int
    device_name: str  # as torch.cuda.get_device_name() returns it
    l2_cache: int = 50 * MIB  # bytes; torch's compiler clears a buffer of this size while it measures kernels


GPUS: dict[str, Gpu] = {
    name: Gpu(
        name=name,
        capability=capability,
        total=int(gib * GIB),
        context=context_mib * MIB,
        multiprocessors=multiprocessors,
        device_name=device_name,
        l2_cache=l2_mib * MIB,
    )
    for name, capability, gib, context_mib, multiprocessors, l2_mib, device_name in (
        ("b200-180gb", (10, 0), 178.3, 600, 148, 126, "NVIDIA B200"),
        ("h200-141gb", (9, 0), 139.8, 550, 132, 50, "NVIDIA H200"),
        ("h100-80gb", (9, 0), 79.1, 550, 132, 50, "NVIDIA H100 80GB HBM3"),
        ("a100-80gb", (8, 0), 79.1, 450, 108, 40, "NVIDIA A100-SXM4-80GB"),
        ("a100-40gb", (8, 0), 39.4, 450, 108, 40, "NVIDIA A100-SXM4-40GB"),
        ("l40s-48gb", (8, 9), 44.4, 400, 142, 96, "NVIDIA L40S"),
        ("a6000-48gb", (8, 6), 47.4, 400, 84, 6, "NVIDIA RTX A6000"),
        ("rtx5090-32gb", (12, 0), 31.3, 500, 170, 96, "NVIDIA GeForce RTX 5090"),
        ("rtx4090-24gb", (8, 9), 23.6, 400, 128, 72, "NVIDIA GeForce RTX 4090"),
        ("rtx3090-24gb", (8, 6), 23.7, 350, 82, 6, "NVIDIA GeForce RTX 3090"),
        ("a10g-24gb", (8, 6), 22.0, 350, 80, 6, "NVIDIA A10G"),
        ("l4-24gb", (8, 9), 22.0, 350, 58, 48, "NVIDIA L4"),
        ("v100-32gb", (7, 0), 31.7, 350, 80, 6, "Tesla V100-SXM2-32GB"),
        ("v100-16gb", (7, 0), 15.8, 350, 80, 6, "Tesla V100-SXM2-16GB"),
        ("t4-16gb", (7, 5), 14.6, 250, 40, 4, "Tesla T4"),
    )
}
"""Typical values; drivers and clouds differ by tens of MiB."""


_DECIMAL = re.compile(r"(\d+)\s*gb", re.IGNORECASE)  # a size that may also be a part of a card's name: v100-16gb

NCCL = 400 * MIB
"""Typical bytes of NCCL's buffers for a group of ranks in one node."""


def gpu_named(name: str) -> Gpu:
    """A GPU by its name, torch's name of it, an unambiguous part of either, or a size; UsageError if none or several.

    Of several that are sold with one size, such as ``16GB``, it is the one with the least memory.
    A whole word is preferred to a part of one: ``l4`` is the L4, not the L40S. A size, such as ``12GiB``, is that of a
    GPU which is not listed: it computes like the smallest listed one with as much memory.
    """
    query = _letters(name)
    for matches_query in (_is_name, _is_model, _begins_with, _contains):
        if query and (matches := [gpu for gpu in GPUS.values() if matches_query(gpu, query)]):
            break
    else:
        total = _size(name)
        if total:
            larger = sorted(GPUS.values(), key=lambda gpu: (gpu.total < total, abs(gpu.total - total)))
            return replace(larger[0], name=name, total=total)
        if total == 0:
            raise UsageError(f"--gpu {name}: a GPU has more memory than that; give its size, as in --gpu 12GiB")
        known = [part for gpu in GPUS for part in (gpu, gpu.partition("-")[0])]
        hint = did_you_mean(query, known) or f"there are {', '.join(GPUS)}"
        raise UsageError(f"--gpu {name}: {hint} · another one is given by its memory, as in --gpu 12GiB")
    if len(matches) > 1 and not _DECIMAL.fullmatch(name.strip()):
        names = ", ".join(gpu.name for gpu in matches)
        raise UsageError(f"--gpu {name}: say which of {names}, or its memory, as 24GiB")
    return min(matches, key=lambda gpu: gpu.total)


def gpus_named(names: str | Sequence[str]) -> list[Gpu]:
    """GPUs by their names or one's, each once; ``'all'`` stands for every one. Errors as for :func:`gpu_named`."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"--gpu {names!r}: give a name, as 'a100-40gb', a size, as '12GiB', or several of these")
    found = [gpu for name in names for gpu in (GPUS.values() if name == "all" else [gpu_named(name)])]
    if not found:
        raise UsageError(f"--gpu: no GPU is named; there are {', '.join(GPUS)}")
    return list({gpu.name: gpu for gpu in found}.values())


def _size(text: str) -> int | None:
    """The bytes that a text names; ``None`` if it names none."""
    try:
        return parse_bytes(text)
    except ValueError:
        return None


def _is_name(gpu: Gpu, query: str) -> bool:
    return query in (_letters(gpu.name), _letters(gpu.device_name))


def _is_model(gpu: Gpu, query: str) -> bool:
    return query == gpu.name.partition("-")[0]


def _begins_with(gpu: Gpu, query: str) -> bool:
    return _letters(gpu.name).startswith(query)


def _contains(gpu: Gpu, query: str) -> bool:
    return query in _letters(gpu.name) or query in _letters(gpu.device_name)


def _letters(name: str) -> str:
    """Letters and digits only, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
