"""Formats a sweep's tables: peaks by context length, mixed precision, activations, largest allocations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tbmem.model.category import word_of
from tbmem.model.job import DTYPES
from tbmem.model.sweep import PASSES, MemoryPeak, ModelFacts, Status, Sweep, SweepCase, SweepCell
from tbmem.present.labels import columns
from tbmem.units import format_bytes

_LISTED = 5
_KEPT_IN_FULL = ("parameter", "gradient", "optimizer_state")


def peak_table(sweep: Sweep) -> Iterator[str]:
    """Peaks by context length, measured and predicted, forward passes beside training."""
    yield f"Peak memory by context length, on {sweep.device} (measured | predicted)"
    yield ""
    header = ["model", "batch", "context", "precision", "forward", "training"]
    reserves = any(cell.predicted and cell.predicted.reserved is not None for cell in sweep.cells)
    if reserves:
        header += ["reserved (forward)", "reserved (training)"]
    cells = _by_key(sweep)
    rows = []
    # models as they were asked for, then numbers, full precision before autocast's
    sizes, precisions = list(sweep.models), list(DTYPES)
    keys = {key[:-1] for key in cells}
    for key in sorted(keys, key=lambda key: (sizes.index(key[0]), key[1], key[2], precisions.index(key[3]))):
        pair = [cells.get((*key, what)) for what in PASSES]
        rows.append([*map(str, key), *map(_measured_and_predicted, pair)])
        if reserves:
            rows[-1] += [_measured_and_predicted(cell, "reserved") for cell in pair]
    yield from columns(header, rows)
    yield ""
    yield from sweep.notes
    yield from (f"{cell_name(cell.case)}: {cell.note}" for cell in sweep.cells if cell.note)


def _by_key(sweep: Sweep) -> dict[tuple[str, int, int, str, str], SweepCell]:
    cases = ((cell.case, cell) for cell in sweep.cells)
    return {(case.size, case.batch, case.context, case.precision, case.what): cell for case, cell in cases}


def _measured_and_predicted(cell: SweepCell | None, name: str = "allocated") -> str:
    if cell is None:
        return "-"
    first = _size(cell.measured, name) if cell.status is Status.MEASURED else cell.status.value
    return f"{first} | {_size(cell.predicted, name)}"


def _size(moment: MemoryPeak | None, name: str = "allocated") -> str:
    value = getattr(moment, name) if moment is not None else None
    return format_bytes(value) if value is not None else "-"


def cell_name(case: SweepCase) -> str:
    """Description of a case."""
    return f"{case.size}, {case.context} tokens, batch {case.batch}, {case.what}, {case.precision}"


def cell_line(cell: SweepCell) -> str:
    """One line for a finished cell."""
    what = cell_name(cell.case)
    if cell.status is not Status.MEASURED:
        return f"{what}: {cell.status.value} ({cell.note or 'no reason is known'}); predicted {_size(cell.predicted)}"
    reserved = f", reserved {_size(cell.measured, 'reserved')}" if cell.measured and cell.measured.reserved else ""
    speed = f"{cell.seconds:.2f} s/step" + (f". {cell.note}" if cell.note else "")
    return f"{what}: peak {_size(cell.measured)}{reserved}; predicted {_size(cell.predicted)}; {speed}"


def precision_table(sweep: Sweep) -> Iterator[str]:
    """Full precision beside autocast, and why so little is saved."""
    yield f"Mixed precision (autocast) against full precision, on {sweep.device} (measured | predicted)"
    yield ""
    rows, reasons = [], []
    for mixed in sweep.cells:
        full = sweep.cell(replace(mixed.case, precision="fp32"))
        if mixed.case.precision == "fp32" or full is None:
            continue
        saved = f"{_saving(full.measured, mixed.measured)} | {_saving(full.predicted, mixed.predicted)}"
        case, peaks = mixed.case, [_measured_and_predicted(cell) for cell in (full, mixed)]
        job = (case.size, str(case.batch), str(case.context), case.what)
        rows.append((*job, peaks[0], case.precision, peaks[1], saved))
        reasons.append(_reason(full, mixed))
    if not rows:
        yield "Nothing was run in both; --use-mixed-precision --dtype fp32,bf16 does."
        return
    yield from columns(("model", "batch", "context", "pass", "fp32", "mixed in", "peak", "saved"), rows)
    yield ""
    yield from dict.fromkeys(reason for reason in reasons if reason)


def _saving(full: MemoryPeak | None, mixed: MemoryPeak | None) -> str:
    if full is None or mixed is None:
        return "-"
    return f"{100 * (1 - mixed.allocated / full.allocated):.1f} %"


def _reason(full: SweepCell, mixed: SweepCell) -> str:
    """What autocast leaves in float32, what it halves, and what it adds, in this cell's bytes."""
    before = full.predicted or full.measured
    after = mixed.predicted or mixed.measured
    if before is None or after is None:
        return ""
    start, precision = f"{cell_name(mixed.case)}: ", mixed.case.precision
    if mixed.case.what == "forward":
        states = before.parts.get("parameter", 0)
        besides = [moment.allocated - moment.parts.get("parameter", 0) for moment in (before, after)]
        more = ", which is more, not less, as long as weights outweigh what is computed"
        return start + (
            f"parameters stay in float32, {format_bytes(states)} of {_size(before)}, and autocast keeps a"
            f" {precision} copy of each weight until the pass ends; without gradients no activations wait"
            f" for a backward pass, so there is little else to halve: besides parameters {format_bytes(besides[0])}"
            f" in fp32, {format_bytes(besides[1])} in {precision}{more if besides[1] > besides[0] else ''}."
        )
    kept = sum(before.parts.get(name, 0) for name in _KEPT_IN_FULL)
    start += (
        f"parameters, gradients and AdamW's two moments stay in float32, {format_bytes(kept)} of {_size(before)}"
        f" ({100 * kept / before.allocated:.0f} %) at the peak; "
    )
    sizes = f"from {format_bytes(before.activations)} to {format_bytes(after.activations)}"
    if after.activations <= before.activations:
        return f"{start}only what waits for the backward pass shrinks, {sizes}."
    return (
        f"{start}activations shrink, but the {precision} copies of the weights, which the backward"
        f" pass needs as well, outweigh that at this size: what waits for it grows {sizes}."
    )


def activation_text(sweep: Sweep) -> Iterator[str]:
    """How large one activation of the residual stream is, and how many of them a layer keeps."""
    yield "Size of one activation tensor of the residual stream, in single precision"
    yield ""
    yield "  batch x context x width x 4 bytes: one vector of the model's width for each token of each sample."
    cases = dict.fromkeys((cell.case.size, cell.case.batch, cell.case.context) for cell in sweep.cells)
    for size, batch, context in cases:
        facts = sweep.models[size]
        count = batch * context * facts.width
        yield ""
        yield (
            f"{size}, batch {batch}, {context} tokens, width {facts.width:,}: {batch} x {context} x {facts.width}"
            f" = {count:,} values x 4 bytes = {4 * count:,} bytes = {format_bytes(4 * count)}"
        )
        yield from _kept(sweep, facts, batch, context, 4 * count)


def _kept(sweep: Sweep, facts: ModelFacts, batch: int, context: int, residual: int) -> Iterator[str]:
    """Activations that training keeps, in multiples of the residual stream."""
    cell = _by_key(sweep).get((facts.size, batch, context, "fp32", "training"))
    if cell is None:
        return
    for word, moment in (("measured", cell.measured), ("predicted", cell.predicted)):
        if moment is not None and moment.activations:
            yield (
                f"  {word}: {format_bytes(moment.activations)} are kept for the backward pass, as much as "
                f"{moment.activations / residual:.0f} such tensors, {moment.activations / residual / facts.layers:.1f} "
                f"for each of {facts.layers} layers (logits and loss included)."
            )
    scores = batch * facts.heads * context * context * 4
    logits = batch * context * facts.vocabulary * 4
    yield (
        f"  for comparison: a layer's attention scores would be batch x heads x context^2 x 4 = {format_bytes(scores)}"
        f" if they were kept; the logits are {format_bytes(logits)}."
    )


def largest_text(sweep: Sweep) -> Iterator[str]:
    """The largest allocations at each peak, and where they come from."""
    yield "Largest allocations of a step at its peak; parameters and optimizer state are older"
    for cell in sweep.cells:
        both = (("measured", cell.measured), ("predicted", cell.predicted))
        peaks = [(word, peak) for word, peak in both if peak is not None]
        if not peaks:
            continue
        yield ""
        where = [f"{word} in the {word_of(peak.phase)}" for word, peak in peaks if peak.phase not in ("", "other")]
        yield f"{cell_name(cell.case)}: {'the peak is ' if where else ''}{', '.join(where)}"
        rows = [
            (word, format_bytes(item.bytes), word_of(item.category), item.what, item.line or "-")
            for word, peak in peaks
            for item in peak.largest[:_LISTED]
        ]
        yield from columns(("", "size", "category", "of", "line"), rows)
