"""GPUs by name, with memory and compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tbmem.errors import UsageError
from tbmem.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU for estimates."""

    name: str
    capability: tuple[int, int]
    total: int  # bytes, as torch reports them: less than the name says, since the driver reserves some
    context: int


GPUS: dict[str, Gpu] = {
    name: Gpu(name=name, capability=capability, total=int(gib * GIB), context=context_mib * MIB)
    for name, capability, gib, context_mib in (
        ("b200-180gb", (10, 0), 178.3, 600),
        ("h200-141gb", (9, 0), 139.8, 550),
        ("h100-80gb", (9, 0), 79.1, 550),
        ("a100-80gb", (8, 0), 79.1, 450),
        ("a100-40gb", (8, 0), 39.4, 450),
        ("l40s-48gb", (8, 9), 44.4, 400),
        ("a6000-48gb", (8, 6), 47.4, 400),
        ("rtx5090-32gb", (12, 0), 31.3, 500),
        ("rtx4090-24gb", (8, 9), 23.6, 400),
        ("rtx3090-24gb", (8, 6), 23.7, 350),
        ("a10g-24gb", (8, 6), 22.0, 350),
        ("l4-24gb", (8, 9), 22.0, 350),
        ("v100-32gb", (7, 0), 31.7, 350),
        ("v100-16gb", (7, 0), 15.8, 350),
        ("t4-16gb", (7, 5), 14.6, 250),
    )
}
"""Typical values; drivers and clouds differ by tens of MiB."""


def gpu_named(name: str) -> Gpu:
    """A GPU by its name, or the beginning of it; UsageError if there is none or several."""
    query = re.sub(r"[\s_]", "-", name.lower())
    matches = [key for key in GPUS if key == query] or [key for key in GPUS if key.startswith(query)]
    if len(matches) == 1:
        return GPUS[matches[0]]
    raise UsageError(f"--gpu {name}: {'say which of' if matches else 'there are'} {', '.join(matches or GPUS)}")
