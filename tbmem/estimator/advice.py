"""Estimates changes to a training run that would make it fit: one alone, or several where none is on so many ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from tbmem.analysis.estimates.fit import HIGH, Alternative, Estimate, Fit
from tbmem.errors import UsageError
from tbmem.model.gpus import NCCL
from tbmem.model.job import Job
from tbmem.model.progress import progress
from tbmem.units import format_bytes

EstimateAll = Callable[[Sequence[Job]], list[Estimate | UsageError]]
"""Estimates jobs, all for the same GPU."""
_HAS_FUSED = ("adamw", "adam", "sgd", "momentum", "adagrad")
_BF16 = (8, 0)
"""The first compute capability with bfloat16."""
_NODE, _MOST_RANKS = 8, 1024
_COMBINED, _SHOWN = 5, 3
"""Changes that are combined, those that save most; and combinations that are shown."""
_TRIES, _LARGEST_BATCH = 9, 4096
_LEAST_SAVED = 0.005  # part of the memory below which a change saves nothing


class _Change(NamedTuple):
    """A change, and the fields of the job that it sets or depends on: two that share one do not go together."""

    name: str
    fields: dict[str, Any]

    def applied(self, job: Job) -> Job:
        return replace(job, **self.fields)


_Tried = list[tuple[_Change, Estimate]]


def alternatives_to(first: Estimate, estimate_all: EstimateAll) -> Iterator[Alternative]:
    """Changes that save memory: single ones, some together if none is enough, and the largest batch that fits.

    Whoever has no more ranks needs to know what is enough without.
    """
    known = f"{first.fit.word} ({format_bytes(first.peak_reserved)} reserved of {format_bytes(first.capacity)})"
    progress(f"{known}; trying changes that would save memory")
    tried = _estimated([*_changes(first), *_more_ranks(first)], first, estimate_all)
    tried += _enough_ranks(first, estimate_all)
    if first.fit is not Fit.FITS:
        tried += _enough_parts(first, tried, estimate_all)
    yield from (alternative(change.name, estimate) for change, estimate in tried)
    enough = [change for change, estimate in tried if estimate.fit is Fit.FITS]
    if first.fit is not Fit.FITS and all(_needs_ranks(change) for change in enough):
        progress(f"{known}; trying several changes together")
        together = _combined(first, tried, estimate_all, with_ranks=not enough)
        yield from (alternative(change.name, estimate) for change, estimate in together)
    progress(f"{known}; trying larger batches" if first.fit is Fit.FITS else f"{known}; trying smaller batches")
    largest, is_limit = _largest_batch(first, estimate_all)
    if largest is not None:
        what = "the largest that is not tight" if is_limit else "larger ones were not tried"
        yield alternative(f"batch {largest.job.batch}, {what}", largest)


def alternative(change: str, estimate: Estimate) -> Alternative:
    """The estimate with a change as an alternative to the one without."""
    allocated, reserved = estimate.peak_allocated, estimate.peak_reserved
    return Alternative(
        change=change,
        allocated=allocated,
        reserved=reserved,
        fit=estimate.fit,
        batch=estimate.job.batch,
        ranks=estimate.job.world_size,
    )


def _estimated(changes: Sequence[_Change], first: Estimate, estimate_all: EstimateAll) -> _Tried:
    """The changes that can be executed and save memory worth mentioning."""
    outcomes = estimate_all([change.applied(first.job) for change in changes]) if changes else []
    return [
        (change, outcome)
        for change, outcome in zip(changes, outcomes, strict=True)
        if isinstance(outcome, Estimate) and outcome.peak_reserved < (1 - _LEAST_SAVED) * first.peak_reserved
    ]


def _changes(first: Estimate) -> Iterator[_Change]:
    job, full_precision = first.job, first.dtype in ("", "float32")
    has_bf16 = job.capability >= _BF16
    if not job.checkpoint:
        yield _Change("activation checkpointing", {"checkpoint": True})
    if full_precision and job.amp is None:
        yield (
            _Change("bf16 autocast", {"amp": "bfloat16"}) if has_bf16 else _Change("fp16 autocast", {"amp": "float16"})
        )
    if full_precision and has_bf16:
        yield _Change("bf16 throughout", {"dtype": "bfloat16", "amp": None})
    if job.optimizer in _HAS_FUSED and job.implementation in ("default", "foreach") and not job.offload:
        yield _Change("fused optimizer", {"implementation": "fused"})
    if job.optimizer in ("adam", "adamw"):
        yield _Change("8-bit AdamW", {"optimizer": "adamw8bit", "implementation": "default"})
    if not job.offload and job.world_size == 1:
        depends = {"optimizer": job.optimizer, "implementation": job.implementation, "world_size": 1}
        yield _Change("optimizer state in host memory", {"offload": True, **depends})
    parts = 2 * job.parts
    if job.batch % parts == 0 and job.pipeline > 1:
        yield _Change(f"batch in {parts} microbatches", {"microbatches": parts})
    elif job.batch % parts == 0:
        yield _accumulated(parts)


def _accumulated(parts: int) -> _Change:
    return _Change(f"gradient accumulation, batch in {parts} parts", {"accumulate": parts})


def _more_ranks(first: Estimate) -> Iterator[_Change]:
    """States sharded over the ranks that hold copies of them."""
    job = first.job
    if job.replicate > 1:
        ranks = job.fsdp * job.replicate
        yield _Change(f"FSDP over {ranks}, without copies", {"fsdp": ranks, "replicate": 1})


def _sharded(job: Job, factor: int) -> _Change:
    """States sharded over some times the ranks."""
    fields = {"fsdp": factor * job.fsdp, "world_size": factor * job.world_size}
    return _Change(f"FSDP over {fields['fsdp']}", fields)


def _enough_ranks(first: Estimate, estimate_all: EstimateAll) -> _Tried:
    """States sharded over as many ranks as are needed; nothing if no number of them is enough."""
    factor = ranks_that_fit(first) if first.job.replicate == 1 else None
    while factor is not None and factor <= _MOST_RANKS:
        tried = _estimated([_sharded(first.job, factor)], first, estimate_all)
        if not tried or tried[0][1].fit is Fit.FITS:
            return tried
        factor *= 2
    return []


def _enough_parts(first: Estimate, tried: _Tried, estimate_all: EstimateAll) -> _Tried:
    """The batch in as many parts as are needed; nothing if two are enough, or no number of them is."""
    job = first.job
    halved = next((estimate for change, estimate in tried if change.fields.keys() == {"accumulate"}), None)
    if halved is None or halved.fit is Fit.FITS:
        return []
    # what a part needs is halved with it, the rest stays
    of_parts = 2 * (first.peak_reserved - halved.peak_reserved)
    room = _room(first)
    parts = 4 * job.parts
    while job.batch % parts == 0:
        if first.peak_reserved - of_parts * (1 - job.parts / parts) <= room:
            enough = _estimated([_accumulated(parts)], first, estimate_all)
            if not enough or enough[0][1].fit is Fit.FITS:
                return enough
        parts *= 2
    return []


def _room(estimate: Estimate) -> float:
    """Bytes that the allocator may be expected to reserve on the GPU, at most, of a run that fits."""
    return (estimate.capacity - sum(estimate.outside.values())) / HIGH


def _needs_ranks(change: _Change) -> bool:
    return change.fields.keys() >= {"fsdp", "world_size"}


def ranks_that_fit(first: Estimate) -> int | None:
    """The smallest power of two up to 1,024 of times as many ranks so that it should fit; ``None`` if there is none.

    Parameters, gradients and optimizer state are divided by their number; the rest stays.
    """
    formula = first.formula
    states = formula.parameters + formula.optimizer + formula.gradients
    room = _room(first) - NCCL / HIGH
    for ranks in (1 << power for power in range(1, 11)):
        if first.peak_reserved - states * (1 - 1 / ranks) <= room:
            return ranks
    return None


def _combined(first: Estimate, tried: _Tried, estimate_all: EstimateAll, *, with_ranks: bool) -> _Tried:
    """The fewest changes together that fit, two or three of those that save most.

    ``with_ranks``: more ranks among them; else they are enough alone, and only what may be enough is executed.
    """
    ordered = sorted(tried, key=lambda pair: pair[1].peak_reserved)
    single = [change for change, _ in ordered if with_ranks or not _needs_ranks(change)][:_COMBINED]
    if with_ranks and first.job.replicate == 1 and not any(_needs_ranks(change) for change in single):
        single.append(_sharded(first.job, _NODE if first.job.world_size == 1 else 2))
    saved = {change.name: first.peak_reserved - estimate.peak_reserved for change, estimate in tried}
    excess = first.peak_reserved - _room(first)
    for count in (2, 3):
        several = [
            together
            for parts in combinations(single, count)
            if (together := _together(parts)) is not None
            and (with_ranks or sum(saved[part.name] for part in parts) >= excess)
        ]
        fits = [pair for pair in _estimated(several, first, estimate_all) if pair[1].fit is Fit.FITS]
        if fits:
            return sorted(fits, key=lambda pair: pair[1].peak_reserved)[:_SHOWN]
    return []


def _together(changes: Sequence[_Change]) -> _Change | None:
    """Several changes as one; ``None`` if they do not go together."""
    fields = {name: value for change in changes for name, value in change.fields.items()}
    if len(fields) < sum(len(change.fields) for change in changes):
        return None
    return _Change(" + ".join(change.name for change in changes), fields)


def _largest_batch(first: Estimate, estimate_all: EstimateAll) -> tuple[Estimate | None, bool]:
    """The estimate of the largest batch that fits, and whether larger ones do not fit.

    ``None`` if not even one sample per part of a step fits, or the batch is the factory's own. Each batch tried is a
    linear interpolation between the last two.
    """
    if first.job.own_batch:
        return None, False
    # the number of parts of a step does not change
    unit = first.job.parts
    fits, fails = (first, None) if first.fit is Fit.FITS else (None, first)
    for _ in range(_TRIES):
        batch = unit if fits is None else _next_batch(fits, fails, unit)
        if batch is None or (fails is not None and batch >= fails.job.batch):
            break
        (estimate,) = estimate_all([replace(first.job, batch=batch)])
        if isinstance(estimate, UsageError):
            raise estimate
        if estimate.fit is Fit.FITS:
            fits = estimate
        else:
            fails = estimate
    return fits, fails is not None


def _next_batch(fits: Estimate, fails: Estimate | None, unit: int) -> int | None:
    """The batch to try next; ``None`` if there is none between the two."""
    low = fits.job.batch
    if fails is None:
        return low * 4 if low < _LARGEST_BATCH else None
    width = fails.job.batch - low
    if width <= unit:
        return None
    share = (_room(fits) - fits.peak_reserved) / max(fails.peak_reserved - fits.peak_reserved, 1)
    step = int(share * width) // unit * unit
    return low + min(max(step, unit), (width - 1) // unit * unit)
