"""Recommendations for a device, each with the number that triggered it; none for a setting that is already on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tbmem.analysis.diagnosis.advice import CONF
from tbmem.analysis.recordings.category_rules import KV_CACHE
from tbmem.analysis.recordings.result import DeviceAnalysis, Recommendation
from tbmem.model.category import Category, word_of
from tbmem.units import GIB, MIB, format_bytes, format_share

_NEVER_USED_PERCENT = 10
_FRAGMENTED_PERCENT = 5
_LARGE_BLOCK = 100 * MIB
_ROUNDING_PERCENT = 5
_CAPACITY_PERCENT = 90
_MIN_PEAK = 16 * MIB
"""Smaller peaks get no recommendation on their categories."""
_MIN_WEIGHTS = 1 * GIB  # the same of weights and of a KV cache, which nobody makes smaller without need
_EXPANDABLE = "expandable_segments:True"
_EXPAND = f"{CONF}={_EXPANDABLE}"
_PERCENT_OF_PEAK = {
    Category.PARAMETER: (60, "weights of fewer bits (bf16, 8 or 4 bit), or spread over GPUs (FSDP, tensor parallel)"),
    Category.ACTIVATION: (50, "torch.utils.checkpoint around the layers that repeat, or a smaller micro-batch"),
    Category.OPTIMIZER_STATE: (30, "ZeroRedundancyOptimizer or FSDP across ranks, or an 8-bit optimizer"),
    Category.TEMPORARY: (15, "foreach=False in the optimizer, if the peak is in its step"),
}
"""By category: the share of the peak from which it is mentioned, and what to do."""
_WITH = {Category.ACTIVATION: ", that of attention and of matrix products included,"}
"""What tables list by itself and torch counts to a category."""
_KV_CACHE_PERCENT = 30
_SMALLER_CACHE = (
    "fewer or shorter sequences at a time, or a cache of fewer bits (vLLM: gpu_memory_utilization, max_model_len,"
    " kv_cache_dtype; transformers: use_cache=False in training)"
)


class DeviceFacts(NamedTuple):
    """Input of the recommendations."""

    device: DeviceAnalysis
    by_category: Mapping[Category, int]
    """Bytes at the peak by torch's category, known or inferred."""
    settings: Mapping[str, Any]
    expandable: bool
    """Whether a segment is expandable."""
    replayed: Callable[[str], int | None] = lambda setting: None
    """Bytes by which a setting changes the most that is reserved, found by a replay; ``None`` where it cannot tell."""


def recommendations_for(facts: DeviceFacts) -> tuple[Recommendation, ...]:
    """Recommendations, the most urgent first."""
    rules = (
        *(_on_leaks, _on_out_of_memory, _on_cache, _on_fragments, _on_rounding, _on_capacity),
        *(_on_categories, _on_kv_cache),
    )
    return tuple(recommendation for rule in rules for recommendation in rule(facts))


def _on_leaks(facts: DeviceFacts) -> Iterator[Recommendation]:
    for suspect in facts.device.suspects[:3]:
        yield Recommendation(
            message=f"Possible leak: {suspect.message}",
            setting=f"{suspect.line}: keep .detach() or .item() of what is stored, or drop it after the step",
            trigger="bytes_per_step",
            value=suspect.bytes_per_step,
            limit=0,
        )


def _on_out_of_memory(facts: DeviceFacts) -> Iterator[Recommendation]:
    parts = facts.device.fragmentation
    failed, free, largest = parts.failing_request_bytes, parts.free_bytes, parts.largest_free_block_bytes or 0
    if failed is None or free is None:
        return
    if not parts.failing_request_fits_free_sum:
        text = f"Out of memory for {format_bytes(failed)} with {format_bytes(free)} free in all: not by fragmentation."
        less = "less of what is alive at the peak (the tables by category and by line)"
        yield Recommendation(message=text, setting=less, trigger="failing_request_bytes", value=failed, limit=free)
        return
    if not _can_expand(facts):
        return
    text = (
        f"Out of memory for {format_bytes(failed)} while {format_bytes(free)} lay free in pieces, the largest"
        f" {format_bytes(largest)}: fragmentation prevented it."
    )
    yield Recommendation(message=text, setting=_EXPAND, trigger="failing_request_bytes", value=failed, limit=largest)


def _on_cache(facts: DeviceFacts) -> Iterator[Recommendation]:
    """Memory that is free at the end of a step serves the next peak; only what no peak has needed counts."""
    parts, most, never_used = (
        facts.device.fragmentation,
        facts.device.peak_reserved_bytes,
        facts.device.never_used_bytes,
    )
    cached, largest = parts.cached_bytes, parts.largest_free_block_bytes
    if not most or never_used is None or cached is None:
        return
    limit = most * _NEVER_USED_PERCENT / 100
    # the rest is attributed to fragmentation
    spare = never_used - (parts.fragmented_bytes or 0)
    if min(spare, cached) > limit and not _is_set(facts, "garbage_collection_threshold"):
        text = (
            f"{format_bytes(never_used)} ({format_share(never_used, most)} that were reserved at most) were unused"
            f" even at the peak, and {format_bytes(cached)} are cached at the end: torch can use them again, other"
            " processes cannot."
        )
        setting = f"{CONF}=garbage_collection_threshold:0.8, or torch.cuda.empty_cache() once a phase is over"
        yield Recommendation(message=text, setting=setting, trigger="never_used_bytes", value=never_used, limit=limit)
    if largest is not None and min(spare, cached, largest) > _LARGE_BLOCK:
        text = (
            f"One free block has {format_bytes(largest)}, and {format_bytes(never_used)} of what is reserved were"
            " unused even at the peak: what the block held may be unused from now on."
        )
        setting, trigger = "torch.cuda.empty_cache() once, if it does not come back", "largest_free_block_bytes"
        yield Recommendation(message=text, setting=setting, trigger=trigger, value=largest, limit=_LARGE_BLOCK)


def _on_fragments(facts: DeviceFacts) -> Iterator[Recommendation]:
    """Gaps at the end of a step are filled by the next one; they cost only what the peak could not use."""
    parts, most, never_used = (
        facts.device.fragmentation,
        facts.device.peak_reserved_bytes,
        facts.device.never_used_bytes,
    )
    fragmented, limit = parts.fragmented_bytes, _FRAGMENTED_PERCENT * (most or 0) / 100
    if not most or never_used is None or fragmented is None or min(fragmented, never_used) <= limit:
        return
    text = (
        f"{format_bytes(fragmented)} ({100 * fragmented / most:.1f} % of the most that was reserved) lie free in"
        f" {parts.gaps} gaps between used blocks, the largest {format_bytes(parts.largest_gap_bytes or 0)}, and"
        f" {format_bytes(never_used)} were unused even at the peak: this is fragmentation."
    )
    # torch ignores max_split_size_mb where segments are expandable
    other = "allocate long-lived tensors before temporary ones"
    if not _can_expand(facts):
        setting = f"{other} (expandable_segments is on already)"
    elif (change := facts.replayed(_EXPANDABLE)) is None:
        setting = _EXPAND
    else:
        setting = _EXPAND if -change > limit / 2 else f"{other}; sizes that vary less (padding, buckets of lengths)"
        amount = f"{format_bytes(abs(change))} {'less' if change < 0 else 'more'}" if change else "as much"
        text += f" Replayed with {_EXPANDABLE} the allocator reserves {amount} at its peak."
    yield Recommendation(message=text, setting=setting, trigger="fragmented_bytes", value=fragmented, limit=limit)


def _on_rounding(facts: DeviceFacts) -> Iterator[Recommendation]:
    loss, reserved = facts.device.fragmentation.rounding_loss_bytes, facts.device.reserved_bytes
    if not reserved or loss is None or 100 * loss <= _ROUNDING_PERCENT * reserved:
        return
    powers = facts.settings.get("roundup_power2_divisions")
    setting = "one large tensor in place of many small ones (foreach or flattened buffers)"
    if any(powers.values()) if isinstance(powers, Mapping) else powers:
        setting = f"{CONF}=roundup_power2_divisions:[...] with more divisions"
    text = (
        f"Rounding costs {format_bytes(loss)} ({100 * loss / reserved:.1f} % of reserved): many small tensors, or sizes"
        " just above a step of the allocator."
    )
    limit = reserved * _ROUNDING_PERCENT / 100
    yield Recommendation(message=text, setting=setting, trigger="rounding_loss_bytes", value=loss, limit=limit)


def _on_capacity(facts: DeviceFacts) -> Iterator[Recommendation]:
    reserved, total = facts.device.peak_reserved_bytes, facts.device.total_bytes
    most = reserved if reserved is not None else facts.device.peak.bytes
    if total and 100 * most > _CAPACITY_PERCENT * total:
        share = f"{format_share(most, total)} of the device"
        text = f"{format_bytes(most)} are needed at most, {share}: the next longer batch may not fit."
        text += _no_fragmentation(facts)
        setting, limit = "a smaller batch with gradient accumulation", total * _CAPACITY_PERCENT / 100
        yield Recommendation(message=text, setting=setting, trigger="peak_bytes", value=most, limit=limit)


def _on_categories(facts: DeviceFacts) -> Iterator[Recommendation]:
    peak = facts.device.peak
    for category, (percent, setting) in _PERCENT_OF_PEAK.items():
        least = _MIN_WEIGHTS if category is Category.PARAMETER else _MIN_PEAK
        if peak.bytes < least or (category is Category.TEMPORARY and peak.phase != "OPTIMIZER"):
            continue
        size, limit = facts.by_category.get(category, 0), peak.bytes * percent / 100
        if size > limit:
            share = f"{100 * size / peak.bytes:.0f} % of the peak"
            yield Recommendation(
                message=f"{word_of(category.name)} memory{_WITH.get(category, '')} is {format_bytes(size)}, {share}.",
                setting=setting,
                trigger=f"by_category.{category.name}",
                value=size,
                limit=limit,
            )


def _on_kv_cache(facts: DeviceFacts) -> Iterator[Recommendation]:
    peak = facts.device.peak.bytes
    size = sum(share.bytes for share in facts.device.by_category if share.name == KV_CACHE)
    limit = peak * _KV_CACHE_PERCENT / 100
    if peak >= _MIN_WEIGHTS and size > limit:
        yield Recommendation(
            message=f"The KV cache is {format_bytes(size)}, {100 * size / peak:.0f} % of the peak.",
            setting=_SMALLER_CACHE,
            trigger="by_category.KV_CACHE",
            value=size,
            limit=limit,
        )


def _no_fragmentation(facts: DeviceFacts) -> str:
    """A sentence where next to nothing was unused at the peak, so that no setting of the allocator gains anything."""
    never_used, most = facts.device.never_used_bytes, facts.device.peak_reserved_bytes
    if not most or never_used is None or 100 * never_used > _FRAGMENTED_PERCENT * most:
        return ""
    return f" Only {format_bytes(never_used)} of it were unused at the peak: fragmentation is not the reason."


def _can_expand(facts: DeviceFacts) -> bool:
    """Whether expandable segments are still off."""
    return not facts.expandable and not _is_set(facts, "expandable_segments", "true")


def _is_set(facts: DeviceFacts, key: str, value: str = "") -> bool:
    """Whether a setting is recorded, or occurs in one of the variables that torch reads its settings from."""
    texts = [
        str(text).lower().replace(" ", "")
        for name, text in facts.settings.items()
        if name.endswith("ALLOC_CONF") or name == "last_allocator_settings"
    ]
    return bool(facts.settings.get(key)) or any(f"{key}:{value}" in text for text in texts)
