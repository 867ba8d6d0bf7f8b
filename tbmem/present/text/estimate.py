"""Formats an estimate as text lines, or as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tbmem.analysis.estimates.fit import Estimate, Fit
from tbmem.model.category import word_of
from tbmem.units import format_bytes, format_range

_MODULES = 12
_NTH = ("first", "second", "third", "fourth")
_ROUNDING = "added by the allocator's rounding"


def estimate_view(estimate: Estimate) -> dict[str, Any]:
    """The estimate as plain values for JSON."""
    view = asdict(estimate)
    view["formula"]["total"] = estimate.formula.total
    return view


def estimate_lines(estimate: Estimate) -> Iterator[str]:
    """The estimate as lines for a terminal."""
    yield _headline(estimate)
    yield ""
    peaks = (
        ("allocated", estimate.peak_allocated, estimate.allocated_range),
        ("reserved", estimate.peak_reserved, estimate.reserved_range),
    )
    for word, size, band in peaks:
        yield f"  peak {word:<9}  {format_bytes(size):>12}   expected {format_range(*band)}"
    for name, size in estimate.outside.items():
        yield f"  outside         {format_bytes(size):>12}   {name}, not the allocator's"
    yield ""
    phase = f"in the {word_of(estimate.peak_phase)} of the {_NTH[min(estimate.peak_step, len(_NTH) - 1)]} step"
    if estimate.peak_step < 0:
        phase = "before the first step, where the model is made"
    yield f"The peak is {phase}. {estimate.sentence}"
    rounding = estimate.peak_allocated - sum(estimate.by_category.values())
    yield from _table("Peak by category", estimate.by_category)
    if rounding > 0:
        yield f"  {_ROUNDING:<40} {format_bytes(rounding):>12}"
    yield from _table("Peak by module", estimate.by_module, _MODULES)
    yield from _table("Highest in each phase of a steady step", estimate.by_phase)
    if not estimate.job.inference:
        first, steady = format_bytes(estimate.first_step), format_bytes(estimate.steady_step)
        yield ""
        rest = f"and makes the optimizer's state, later ones {steady}" if first != steady else "as later ones do"
        yield f"The first step needs {first} {rest}."
    yield from _formula(estimate)
    yield from _gpus(estimate)
    for note in estimate.notes:
        yield f"Note: {note}."
    if estimate.executed:
        yield f"Executed on {estimate.executed}."
    yield from alternative_lines(estimate)


def _headline(estimate: Estimate) -> str:
    job = estimate.job
    architecture = f" ({estimate.architecture})" if estimate.architecture else ""
    amp = f", autocast to {job.amp}" if job.amp else ""
    dtype = f" in {estimate.dtype}{amp}" if estimate.dtype else ""
    rank = f", rank {job.rank} of {job.world_size}" if job.world_size > 1 else ""
    batch = "the factory's own batch" if job.own_batch else f"batch {job.batch}"
    batch += f" of {estimate.sequence} tokens" if estimate.sequence else ""
    trained = "inference" if job.inference else estimate.optimizer
    parts = (f"{estimate.parameters:,} parameters{dtype}", batch, trained)
    return f"{job.model}{architecture}: {', '.join(filter(None, parts))}{rank}, on {estimate.gpu}"


def _table(title: str, rows: Mapping[str, int], limit: int | None = None) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"{title}:"
    names = list(rows)[:limit]
    for name in names:
        yield f"  {word_of(name) if limit is None else name:<40} {format_bytes(rows[name]):>12}"
    if rest := sum(size for name, size in rows.items() if name not in names):
        yield f"  {f'{len(rows) - len(names)} more':<40} {format_bytes(rest):>12}"


def _formula(estimate: Estimate) -> Iterator[str]:
    formula = estimate.formula
    more = estimate.peak_allocated - formula.total
    yield ""
    yield "parameters + optimizer state + max(gradients + optimizer intermediates, activations)"
    yield (
        f"= {format_bytes(formula.parameters)} + {format_bytes(formula.optimizer)} + max("
        f"{format_bytes(formula.gradients)} + {format_bytes(formula.intermediates)}, "
        f"{format_bytes(formula.activations)}) = {format_bytes(formula.total)}"
    )
    if more > 0:
        sent = estimate.by_category.get("communication", 0)
        buffers = f"communication ({format_bytes(sent)}), " if sent else ""
        left_out = f"{buffers}the backward pass's own, workspaces, rounding."
        yield f"and {format_bytes(more)} that the formula leaves out: {left_out}"


def _gpus(estimate: Estimate) -> Iterator[str]:
    """Each GPU, where several were asked for."""
    if len(estimate.gpus) < 2:
        return
    yield ""
    yield f"  {'GPU':<16} {'reserved':>12} {'needed':>12} {'has':>12}"
    for each in estimate.gpus:
        sizes = " ".join(f"{format_bytes(size):>12}" for size in (each.peak_reserved, each.needed, each.capacity))
        yield f"  {each.gpu:<16} {sizes}   {each.fit.word}"
    yield ""


def _without_batch(estimate: Estimate) -> str:
    """What no alternative of another batch says."""
    if estimate.fit is not Fit.NO:
        return "no smaller batch needs less than that"
    return (
        "not even a batch of 1 fits" if estimate.job.batch == 1 else "no batch fits without being tight, however small"
    )


def alternative_lines(estimate: Estimate) -> Iterator[str]:
    """What would make a job fit, as far as that was tried."""
    job = estimate.job
    if estimate.alternatives:
        yield ""
        several = any(" + " in alternative.change for alternative in estimate.alternatives)
        place = f" on {estimate.gpu}" if len(estimate.gpus) > 1 else ""
        yield f"With one thing changed{', or several together' if several else ''}{place}:"
        width = max(40, *(len(alternative.change) for alternative in estimate.alternatives))
        yield f"  {'':<{width}} {'allocated':>12} {'reserved':>12}"
        for alternative in estimate.alternatives:
            sizes = f"{format_bytes(alternative.allocated):>12} {format_bytes(alternative.reserved):>12}"
            yield f"  {alternative.change:<{width}} {sizes}   {alternative.fit.word}"
        are_tried = estimate.fit is not Fit.FITS and not job.own_batch
        if are_tried and all(each.batch == job.batch for each in estimate.alternatives):
            yield f"  {_without_batch(estimate)}"
        fitting = [each for each in estimate.alternatives if each.fit is Fit.FITS]
        if estimate.fit is Fit.NO and job.world_size == 1 and all(each.ranks > 1 for each in fitting):
            place = "on one GPU " if fitting else ""
            yield f"  {place}none of these is enough, nor are two or three of them together"
        yield ""
