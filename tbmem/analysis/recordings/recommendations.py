"""Recommendations for a device, each with its number, and never for what is already on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tbmem.analysis.diagnosis.advice import CONF
from tbmem.analysis.recordings.result import DeviceAnalysis, Recommendation
from tbmem.model.category import Category, word_of
from tbmem.units import MIB, format_bytes, format_share

_NEVER_USED_PERCENT = 10
_FRAGMENTED_PERCENT = 5
_LARGE_BLOCK = 100 * MIB
_ROUNDING_PERCENT = 5
_CAPACITY_PERCENT = 90
_WORTH_A_WORD = 16 * MIB
"""A smaller peak needs no advice on its parts."""
_PERCENT_OF_PEAK = {
    Category.ACTIVATION: (50, "torch.utils.checkpoint around the layers that repeat, or a smaller micro-batch"),
    Category.OPTIMIZER_STATE: (30, "ZeroRedundancyOptimizer or FSDP across ranks, or an 8-bit optimizer"),
    Category.TEMPORARY: (15, "foreach=False in the optimizer, if the peak is in its step"),
}
"""From how much of the peak on a category is worth a word, and what to do."""


class Figures(NamedTuple):
    """What recommendations rest on."""

    device: DeviceAnalysis
    by_kind: Mapping[Category, int]
    """Bytes at the peak by torch's own category, where it is known or inferred."""
    settings: Mapping[str, Any]
    expandable: bool
    """Whether a segment is expandable."""


def recommendations_for(figures: Figures) -> tuple[Recommendation, ...]:
    """What to do, the most urgent first."""
    return (
        *_on_leaks(figures),
        *_on_out_of_memory(figures),
        *_on_cache(figures),
        *_on_fragments(figures),
        *_on_rounding(figures),
        *_on_capacity(figures),
        *_on_categories(figures),
    )


def _on_leaks(figures: Figures) -> Iterator[Recommendation]:
    for suspect in figures.device.suspects[:3]:
        yield Recommendation(
            message=f"Possible leak: {suspect.message}",
            setting=f"{suspect.line}: keep .detach() or .item() of what is stored, or drop it after the step",
            trigger="bytes_per_step",
            value=suspect.bytes_per_step,
            limit=0,
        )


def _on_out_of_memory(figures: Figures) -> Iterator[Recommendation]:
    parts = figures.device.fragmentation
    failed, free = parts.failing_request_bytes, parts.free_bytes
    if failed is None or not parts.failing_request_fits_free_sum or free is None or not _can_expand(figures):
        return
    yield Recommendation(
        message=(
            f"Out of memory for {format_bytes(failed)} while {format_bytes(free)} lay free in pieces, the largest"
            f" {format_bytes(parts.largest_free_block_bytes or 0)}: fragmentation was in the way."
        ),
        setting=f"{CONF}=expandable_segments:True",
        trigger="failing_request_bytes",
        value=failed,
        limit=parts.largest_free_block_bytes or 0,
    )


def _on_cache(figures: Figures) -> Iterator[Recommendation]:
    """What is free at the end of a step serves the next peak: only what no peak has needed is worth a word."""
    device = figures.device
    most, never, cached = device.peak_reserved_bytes, device.never_used_bytes, device.fragmentation.cached_bytes
    if not most or never is None or cached is None:
        return
    limit = most * _NEVER_USED_PERCENT / 100
    # the rest is what fragmentation explains
    spare = never - (device.fragmentation.fragmented_bytes or 0)
    if min(spare, cached) > limit and not _collects(figures):
        yield Recommendation(
            message=(
                f"{format_bytes(never)} ({format_share(never, most)} that were reserved at most) were not in use even"
                f" at the peak, and {format_bytes(cached)} are cached at the end: torch can use them again, other"
                " processes cannot."
            ),
            setting=f"{CONF}=garbage_collection_threshold:0.8, or torch.cuda.empty_cache() once a phase is over",
            trigger="never_used_bytes",
            value=never,
            limit=limit,
        )
    largest = device.fragmentation.largest_free_block_bytes
    if largest is not None and min(spare, cached, largest) > _LARGE_BLOCK:
        yield Recommendation(
            message=f"One free block has {format_bytes(largest)}, and {format_bytes(never)} of what is reserved were"
            " not in use even at the peak: what the block held may have gone for good.",
            setting="torch.cuda.empty_cache() once, if it does not come back",
            trigger="largest_free_block_bytes",
            value=largest,
            limit=_LARGE_BLOCK,
        )


def _on_fragments(figures: Figures) -> Iterator[Recommendation]:
    """Gaps at the end of a step are filled by the next one: they cost as far as the peak could not use them."""
    device = figures.device
    parts, most, never = device.fragmentation, device.peak_reserved_bytes, device.never_used_bytes
    fragmented = parts.fragmented_bytes
    if not most or never is None or fragmented is None or min(fragmented, never) <= _FRAGMENTED_PERCENT * most / 100:
        return
    text = (
        f"{format_bytes(fragmented)} ({100 * fragmented / most:.1f} % of the most that was reserved) lie free in"
        f" {parts.gaps} gaps between used blocks, the largest {format_bytes(parts.largest_gap_bytes or 0)}, and"
        f" {format_bytes(never)} were not in use even at the peak: this is fragmentation."
    )
    setting = f"{CONF}=expandable_segments:True"
    if not _can_expand(figures):
        # torch does not look at max_split_size_mb then
        setting = "allocate what lasts before what comes and goes (expandable_segments is on already)"
    yield Recommendation(
        message=text,
        setting=setting,
        trigger="fragmented_bytes",
        value=fragmented,
        limit=most * _FRAGMENTED_PERCENT / 100,
    )


def _on_rounding(figures: Figures) -> Iterator[Recommendation]:
    loss, reserved = figures.device.fragmentation.rounding_loss_bytes, figures.device.reserved_bytes
    if reserved and loss is not None and 100 * loss > _ROUNDING_PERCENT * reserved:
        powers = figures.settings.get("roundup_power2_divisions")
        rounds = any(powers.values()) if isinstance(powers, Mapping) else bool(powers)
        yield Recommendation(
            message=f"Rounding costs {format_bytes(loss)} ({100 * loss / reserved:.1f} % of reserved): many small"
            " tensors, or sizes just above a step of the allocator.",
            setting=(
                f"{CONF}=roundup_power2_divisions:[...] with more divisions"
                if rounds
                else "one large tensor in place of many small ones (foreach or flattened buffers)"
            ),
            trigger="rounding_loss_bytes",
            value=loss,
            limit=reserved * _ROUNDING_PERCENT / 100,
        )


def _on_capacity(figures: Figures) -> Iterator[Recommendation]:
    device = figures.device
    most = device.peak_reserved_bytes if device.peak_reserved_bytes is not None else device.peak.bytes
    if device.total_bytes and 100 * most > _CAPACITY_PERCENT * device.total_bytes:
        yield Recommendation(
            message=f"{format_bytes(most)} are needed at most, {format_share(most, device.total_bytes)} of the device:"
            " the next longer batch may not fit.",
            setting="a smaller batch with gradient accumulation",
            trigger="peak_bytes",
            value=most,
            limit=device.total_bytes * _CAPACITY_PERCENT / 100,
        )


def _on_categories(figures: Figures) -> Iterator[Recommendation]:
    device = figures.device
    if device.peak.bytes < _WORTH_A_WORD:
        return
    for category, (percent, setting) in _PERCENT_OF_PEAK.items():
        size = figures.by_kind.get(category, 0)
        limit = device.peak.bytes * percent / 100
        if category is Category.TEMPORARY and device.peak.phase != "OPTIMIZER":
            continue
        if size > limit:
            share = 100 * size / device.peak.bytes
            yield Recommendation(
                message=f"{word_of(category.name)} memory is {format_bytes(size)}, {share:.0f} % of the peak.",
                setting=setting,
                trigger=f"by_category.{category.name}",
                value=size,
                limit=limit,
            )


def _can_expand(figures: Figures) -> bool:
    """Whether expandable segments are a thing that can still be switched on."""
    on = figures.settings.get("expandable_segments") or _written(figures, "expandable_segments:true")
    return not on and not figures.expandable


def _collects(figures: Figures) -> bool:
    """Whether torch gives back what is cached by itself."""
    return bool(figures.settings.get("garbage_collection_threshold")) or _written(
        figures, "garbage_collection_threshold:"
    )


def _written(figures: Figures, words: str) -> bool:
    """Whether this stands in one of the variables that torch reads its settings from."""
    return any(
        words in str(value).lower().replace(" ", "")
        for name, value in figures.settings.items()
        if name.endswith("ALLOC_CONF") or name == "last_allocator_settings"
    )
