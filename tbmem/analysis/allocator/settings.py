"""AllocatorSettings, parsed from PYTORCH_ALLOC_CONF or from a snapshot, and the sizes of blocks and segments."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tbmem.errors import ConfigError, did_you_mean
from tbmem.units import MIB, round_up

UNLIMITED = sys.maxsize
INTERVALS = 16
"""roundup_power2_divisions has a value for each power of two from 1 MiB to 64 GiB."""
_MIN_LARGE_SEGMENT = 11
"""Minimum of large_segment_size_mb in MiB."""
_IGNORED = frozenset(
    (
        *("release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "pinned_use_cuda_host_register"),
        *("pinned_use_hip_host_register", "pinned_num_register_threads", "pinned_reserve_segment_size_mb"),
        *("pinned_use_background_threads", "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"),
        *("pinned_free_catch_all", "graph_capture_record_stream_reuse", "expandable_segments_handle_type"),
    )
)
"""Keys that affect speed or host memory only."""
SMALLEST_BLOCK = 512
"""Bytes; the size of every block is a multiple of it."""
SMALL = 1 * MIB
"""Largest request of the small pool; the rest of a large block is split off only above this size."""
SMALL_SEGMENT = 2 * MIB
"""Requests of the small pool share segments of this size."""
_OWN_SEGMENT = 10 * MIB
"""Requests from here on get a segment of their own size."""
_SEGMENT_STEP = 2 * MIB
"""Their sizes are rounded up to a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class AllocatorSettings:
    """Settings of PYTORCH_ALLOC_CONF; sizes in bytes."""

    max_split_size: int = UNLIMITED
    """Blocks of this size and above are not split."""
    max_non_split_rounding: int = 20 * MIB
    """A request above max_split_size takes a cached block that is larger by less than this."""
    large_segment_size: int = 20 * MIB
    """Requests of 1 to 10 MiB share segments of this size; pages of large expandable segments have it, too."""
    garbage_collection_threshold: float = 0.0
    """Share of the allowed memory above which cached segments are released; needs per_process_memory_fraction."""
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    """Steps between two powers of two that sizes are rounded to, from 1 MiB on; 0 or 1: not rounded so."""
    expandable_segments: bool = False
    per_process_memory_fraction: float = 1.0
    """Share of the device's memory that this process may reserve."""
    throw_on_cudamalloc_oom: bool = False
    """Fail before more than the fraction above is requested, without releasing cached memory."""


def round_size(requested: int, settings: AllocatorSettings) -> int:
    """Bytes of the block for a request."""
    exponent = requested.bit_length() - 1
    interval = exponent - (MIB.bit_length() - 1)
    steps = settings.roundup_power2_divisions[min(max(interval, 0), INTERVALS - 1)]
    if steps > 1 and requested > SMALLEST_BLOCK * steps:
        return round_up(requested, (1 << exponent) // steps)
    return round_up(max(requested, 1), SMALLEST_BLOCK)


def segment_size(size: int, settings: AllocatorSettings) -> int:
    """Bytes of a new segment for a block."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < _OWN_SEGMENT:
        return settings.large_segment_size
    return round_up(size, _SEGMENT_STEP)


def parse_settings(text: str) -> AllocatorSettings:
    """Parse settings as torch does, ``'max_split_size_mb:128,expandable_segments:True'``.

    Raises:
        ConfigError: A key is unknown or its value is not one that torch takes.
    """
    given = dict(_pairs(text))
    known = {"backend", *_SIZES, *_PARSERS}
    for key in given:
        if key not in known | _IGNORED:
            hint = did_you_mean(key, known | _IGNORED) or f"there are {', '.join(sorted(known))}"
            raise ConfigError(f"allocator settings: {key} is none of them; {hint}")
    changes: dict[str, Any] = {}
    # torch reads this key first, as the default and the minimum of two others
    least = AllocatorSettings.large_segment_size // MIB
    if (size := given.pop("large_segment_size_mb", None)) is not None:
        least = _number("large_segment_size_mb", size, _MIN_LARGE_SEGMENT)
        changes["large_segment_size"] = changes["max_non_split_rounding"] = least * MIB
    for key, value in given.items():
        if key in _SIZES:
            changes[key.removesuffix("_mb")] = _number(key, value, least) * MIB
        elif key in _PARSERS:
            changes[key] = _PARSERS[key](key, value)
        elif key == "backend" and value != "native":
            raise ConfigError(f"allocator settings: backend:{value} is not supported; only native is simulated")
    return AllocatorSettings(**changes)


def settings_of_snapshot(recorded: object) -> AllocatorSettings:
    """Settings of a CUDA memory snapshot, from its key ``allocator_settings``; torch's defaults if there are none.

    The environment variable's text is used for settings that are not listed separately. Malformed values are ignored.
    """
    if not isinstance(recorded, Mapping):
        return AllocatorSettings()
    text = recorded.get("PYTORCH_ALLOC_CONF") or recorded.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    changes: dict[str, Any] = {}
    for key, read in _RECORDED.items():
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            value = read(recorded[key])
            if value is not None:
                changes[key] = value
    return replace(_parse_known(str(text)), **changes)


def _recorded_divisions(value: Mapping[str, Any]) -> tuple[int, ...]:
    divisions = {int(key): int(steps) for key, steps in value.items()}
    return tuple(divisions.get(1 << index, 0) for index in range(INTERVALS))


_RECORDED: dict[str, Callable[[Any], Any]] = {
    # -1: there is no limit
    "max_split_size": lambda value: int(value) if int(value) > 0 else None,
    "expandable_segments": lambda value: value if isinstance(value, bool) else None,
    "garbage_collection_threshold": float,
    "roundup_power2_divisions": _recorded_divisions,
}
"""Parsers of the settings that snapshots list; they return ``None`` for no value."""


def _parse_known(text: str) -> AllocatorSettings:
    """Parse recorded settings, without those of other versions of torch."""
    with suppress(ConfigError):
        return parse_settings(text)
    readable: list[str] = []
    with suppress(ConfigError):
        for pair in [f"{key}:{value}" for key, value in _pairs(text)]:
            with suppress(ConfigError):
                parse_settings(pair)
                readable.append(pair)
    return parse_settings(",".join(readable))


def idle(text: str) -> Iterator[str]:
    """Yield a sentence for each setting of a PYTORCH_ALLOC_CONF that has no effect.

    Raises:
        ConfigError: The text is not what torch takes.
    """
    settings = parse_settings(text)
    given = dict(_pairs(text))
    if settings.garbage_collection_threshold and settings.per_process_memory_fraction >= 1:
        yield "garbage_collection_threshold does nothing without a per_process_memory_fraction below 1"
    if "max_non_split_rounding_mb" in given and settings.max_split_size == UNLIMITED:
        yield "max_non_split_rounding_mb does nothing without max_split_size_mb"
    for key in given:
        if key in _IGNORED:
            yield f"{key} does not change where the device's memory comes from"


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values; the text may be a line of a shell script, ``export PYTORCH_ALLOC_CONF="..."``."""
    line = re.fullmatch(r"\s*(?:export\s+)?(?:PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF=)?(['\"]?)(.*)\1\s*", text, re.DOTALL)
    rest = re.sub(r"\s", "", line[2] if line is not None else text).lstrip(",")
    while rest:
        match = re.match(r"([^,:\[\]]+):(\[[^\]]*\]|[^,:\[\]]+)(,|$)", rest)
        if match is None:
            raise ConfigError(f"allocator settings: cannot read {rest!r}; write key:value,key:value")
        yield match[1], match[2]
        rest = rest[match.end() :].lstrip(",")


def _number(key: str, value: str, least: int = 0) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"allocator settings: {key}:{value} is not a whole number")
    if int(value) < least:
        raise ConfigError(f"allocator settings: {key}:{value} must be {least} or more")
    return int(value)


def _boolean(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise ConfigError(f"allocator settings: {key}:{value} must be True or False")
    return value == "True"


def _share(key: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    inside = 0 < share < 1 if key == "garbage_collection_threshold" else 0 <= share <= 1
    if not inside:
        raise ConfigError(f"allocator settings: {key}:{value} must be a number between 0 and 1")
    return share


def _divisions(key: str, value: str) -> tuple[int, ...]:
    if not value.startswith("["):
        return (_power_of_two(key, value),) * INTERVALS
    divisions, last, first = [0] * INTERVALS, 0, True
    for entry in filter(None, value[1:-1].split(",")):
        boundary, colon, text = entry.partition(":")
        if not colon:
            raise ConfigError(f"allocator settings: {key}:{value}: write size:steps, as in [256:4,512:2,>:1]")
        steps = 0 if text == "0" else _power_of_two(key, text)
        if boundary == ">":
            divisions[last + 1 :] = [steps] * (INTERVALS - last - 1)
            continue
        last = min(_power_of_two(key, boundary).bit_length() - 1, INTERVALS - 1)
        if first:
            divisions[:last] = [steps] * last
            first = False
        divisions[last] = steps
    return tuple(divisions)


def _power_of_two(key: str, value: str) -> int:
    number = _number(key, value)
    if number < 1 or number & (number - 1):
        raise ConfigError(f"allocator settings: {key}: {value} is not a power of two")
    return number


_SIZES = ("large_segment_size_mb", "max_split_size_mb", "max_non_split_rounding_mb")
_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "garbage_collection_threshold": _share,
    "expandable_segments": _boolean,
    "per_process_memory_fraction": _share,
    "throw_on_cudamalloc_oom": _boolean,
    "roundup_power2_divisions": _divisions,
}
"""Parsers of the values of all other keys."""


def describe(settings: AllocatorSettings) -> str:
    """Settings that differ from torch's defaults, in the syntax of PYTORCH_ALLOC_CONF; empty if none does."""
    default = AllocatorSettings(max_non_split_rounding=settings.large_segment_size)
    texts = []
    for key in (*_SIZES, *_PARSERS):
        value, usual = (getattr(each, key.removesuffix("_mb")) for each in (settings, default))
        if value != usual:
            value = value // MIB if key in _SIZES else value
            texts.append(f"{key}:{_format_divisions(value) if isinstance(value, tuple) else value}")
    return ",".join(texts)


def _format_divisions(divisions: tuple[int, ...]) -> str:
    """The shortest list: the first interval applies to smaller sizes, ``>`` to larger ones."""
    if len(set(divisions)) == 1:
        return str(divisions[0])
    first = next(index for index in range(1, INTERVALS) if divisions[index] != divisions[0]) - 1
    last = next(index for index in range(INTERVALS - 1, 0, -1) if divisions[index - 1] != divisions[-1])
    intervals = [f"{1 << index}:{divisions[index]}" for index in range(first, max(last, first + 1))]
    # intervals that are not listed are not rounded
    return f"[{','.join([*intervals, f'>:{divisions[-1]}'] if divisions[-1] else intervals)}]"
