"""Infers what blocks that are older than the recording are for, from their sizes, addresses and frees.

Such blocks have no event and usually no stack. Parameters, gradients and optimizer state are told apart because they
are copies of one set of sizes: as many as a backward pass leaves gradients, in the order in which they were made. What
this does not explain stays unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tbmem.model.category import Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import MIB

_STATES = {"adam": 2, "adamw": 2, "adamax": 2, "nadam": 2, "radam": 2, "sgd": 1, "rmsprop": 1, "adagrad": 1, "lion": 1}
"""Most copies of a parameter's size that an optimizer keeps as state, by the name of its file."""
_OPTIMIZER_FILE = re.compile(r"optim\w*/_?(\w+)\.py$")
_WORKSPACES = (8_519_680, 32 * MIB)
"""Bytes of cuBLAS's workspaces in torch: before Hopper, and from Hopper on."""
_SMALL = MIB
"""Up to this size, blocks are in the allocator's pool of small ones."""
_REPEATED = 3
"""Blocks of one size from which on their number tells how many copies there are."""
_LONGER = 1.5
"""How much longer than the shortest stretch of memory the first one may be."""
_PRIMES = tuple(n for n in range(17, 1000) if all(n % divisor for divisor in range(2, 32)) or n in (17, 19, 23, 29, 31))
"""Prime factors that widths of layers rarely have."""
_SERIES = 8
"""Equal blocks in a row from which on they are not those of a layer."""
_SHORT = 64
"""Events within which most activations are freed where no backward pass needs them."""
_TRAINED = 0.05
"""Least share of the blocks that stay that has gradients; below it, gradients were not made anew."""
_STEP_BYTES = 4
"""Size of the number of steps that fused optimizers keep on the device, one per parameter."""
_MOST = 0.95
"""Share that counts as all of it."""
_LAST = np.iinfo(np.int64).max


class _Passes(NamedTuple):
    """What the recording shows of training."""

    gradients: Counter[int]
    """Blocks that a backward pass leaves, by size."""
    has_backward: bool
    saves_nothing: bool
    """Forward passes keep nothing for a backward pass."""
    states: int | None
    """Most copies that the optimizer keeps; ``None`` if no step was recorded."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """How many of the blocks of each size that stay are parameters, and gradients; the rest is state."""

    parameters: Counter[int]
    gradients: Counter[int]
    states: Counter[int]

    @property
    def is_one(self) -> bool:
        """Whether there are parameters only."""
        return not self.gradients and not self.states


def infer_older(timeline: AllocationTimeline, device: int, candidates: Bools) -> tuple[I64, I64]:
    """Rows among the candidates whose category can be inferred, and the categories.

    Args:
        timeline: The recording.
        device: Number of the device.
        candidates: Rows of unknown category; those that are older than the recording are considered.
    """
    rows = timeline.rows
    older = np.flatnonzero(candidates & (rows.device == device) & (rows.alloc_event < 0) & (rows.bytes > 0))
    category = np.full(len(rows), Category.UNKNOWN, np.int64)
    stay, go = older[rows.free_event[older] < 0], older[rows.free_event[older] >= 0]
    kept = Counter(rows.bytes[stay].tolist())
    category[go] = _of_freed(timeline, device, go, kept)
    released = go[category[go] == Category.GRADIENT]
    passes = _passes(timeline, device, Counter(rows.bytes[released].tolist()))
    copies = _copies(kept, passes)
    if copies is not None:
        stay, inferred = _assigned(timeline, stay, copies)
        category[stay] = inferred
    found = older[category[older] != Category.UNKNOWN]
    return found, category[found]


def _passes(timeline: AllocationTimeline, device: int, released: Counter[int]) -> _Passes:
    rows = timeline.rows
    made = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
    made = made[np.argsort(rows.alloc_event[made], kind="stable")]
    phase = rows.phase[made]
    forward = made[phase == Phase.FORWARD]
    lifetime = np.where(rows.free_event[forward] < 0, _LAST, rows.free_event[forward]) - rows.alloc_event[forward]
    left = _left_by_backward(timeline, made)
    is_released = any(rows.free_event[one] >= 0 for one in left)
    return _Passes(
        gradients=released or Counter(rows.bytes[left].tolist()),
        has_backward=bool((phase == Phase.BACKWARD).any()),
        saves_nothing=len(forward) > 0 and float(np.quantile(lifetime, 0.75)) <= _SHORT,
        states=_optimizer_states(timeline, is_released or bool(released)),
    )


def _left_by_backward(timeline: AllocationTimeline, made: I64) -> I64:
    """What one backward pass allocates and does not free; of several passes the one that leaves the most."""
    rows = timeline.rows
    phase, most = rows.phase[made], made[:0]
    number = np.cumsum(np.isin(phase, (Phase.FORWARD, Phase.OPTIMIZER)))
    in_backward = np.flatnonzero(phase == Phase.BACKWARD)
    for one in np.unique(number[in_backward]).tolist():
        inside = in_backward[number[in_backward] == one]
        span = made[inside[0] : inside[-1] + 1]
        free, end = rows.free_event[span], rows.alloc_event[span[-1]]
        left = span[(free < 0) | (free > end)]
        most = left if rows.bytes[left].sum() > rows.bytes[most].sum() else most
    return most


def _optimizer_states(timeline: AllocationTimeline, has_step: bool) -> int | None:
    """Most copies that the optimizers keep: by their files, else one if a step allocates nothing."""
    files = {frame.file.replace("\\", "/").lower() for frame in timeline.stacks.frames}
    names = {match[1] for file in files if (match := _OPTIMIZER_FILE.search(file))}
    unseen = 1 if has_step and len(timeline.stacks) and not names else None
    return max((_STATES[name] for name in names if name in _STATES), default=unseen)


def _of_freed(timeline: AllocationTimeline, device: int, go: I64, kept: Counter[int]) -> I64:
    """Categories of older blocks that the recording frees and whose sizes stay too.

    Gradients go together, with no allocation between; state that a step replaces goes one by one, after its successor.
    """
    rows = timeline.rows
    found = np.full(len(go), Category.UNKNOWN, np.int64)
    made = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
    made = made[np.argsort(rows.alloc_event[made], kind="stable")]
    position = np.searchsorted(rows.alloc_event[made], rows.free_event[go])
    after = np.append(rows.phase[made], Phase.OTHER)[position]
    before = np.append(rows.phase[made], Phase.OTHER)[position - 1]
    for place in np.unique(position).tolist():
        together = np.flatnonzero(position == place)
        if Phase.BACKWARD in (before[together[0]], after[together[0]]) and before[together[0]] == after[together[0]]:
            continue
        sizes = Counter(rows.bytes[go[together]].tolist())
        if len(together) >= _REPEATED and not sizes - kept:
            found[together] = Category.GRADIENT
    replaced = (before == Phase.OPTIMIZER) & np.isin(rows.bytes[go], list(kept)) & (found == Category.UNKNOWN)
    found[replaced] = Category.OPTIMIZER_STATE
    return found


def _copies(kept: Counter[int], passes: _Passes) -> _Copies | None:
    """How the blocks that stay are divided; ``None`` if the recording does not tell."""
    kept = Counter({size: count for size, count in kept.items() if size not in _WORKSPACES or count >= _REPEATED})
    repeated = Counter({size: count for size, count in kept.items() if count >= _REPEATED})
    if passes.has_backward and (passes.gradients & kept).total() >= max(_TRAINED * kept.total(), 1):
        return _beside_gradients(kept, passes)
    if passes.has_backward:
        return _beside_kept_gradients(kept, repeated, passes)
    number = 1 if passes.saves_nothing else _number_of_copies(repeated)
    return _Copies(kept - _sizes_of_data(kept), Counter(), Counter()) if number == 1 else None


def _beside_gradients(kept: Counter[int], passes: _Passes) -> _Copies:
    """Parameters and state, by the number of gradients of each size; sizes without gradients are frozen."""
    trained = passes.gradients & kept
    has_steps = kept[_STEP_BYTES] >= _MOST * trained.total() - 1
    most = 2 if passes.states is None or has_steps else passes.states
    moments = max(number for number in range(most + 1) if _share(trained, kept, 1 + number) >= _MOST)
    state = Counter({size: moments * min(count, kept[size] // (1 + moments)) for size, count in trained.items()})
    if has_steps:
        state[_STEP_BYTES] = kept[_STEP_BYTES]
    return _Copies(kept - state, Counter(), state)


def _share(trained: Counter[int], kept: Counter[int], copies: int) -> float:
    """How much of the gradients has this many copies of its size among the blocks that stay."""
    enough = sum(size * min(count, kept[size] // copies) for size, count in trained.items())
    return enough / max(_bytes(trained), 1)


def _beside_kept_gradients(kept: Counter[int], repeated: Counter[int], passes: _Passes) -> _Copies | None:
    """Gradients that stay are one of the copies."""
    number = _number_of_copies(repeated)
    if number == 0:
        return None
    one = Counter({size: count // number for size, count in kept.items() if count % number == 0})
    if number == 1:
        return _Copies(kept, Counter(), Counter())
    return _Copies(one, one, Counter({size: (number - 2) * count for size, count in one.items()}))


def _number_of_copies(repeated: Counter[int]) -> int:
    """The largest number, up to four, that divides how often sizes repeat; 0 without such sizes."""
    divided = {number: sum(n for n in repeated.values() if n % number == 0) for number in (1, 2, 3, 4)}
    return max((number for number, blocks in divided.items() if blocks >= _MOST * repeated.total() > 0), default=0)


def _sizes_of_data(kept: Counter[int]) -> Counter[int]:
    """Blocks whose sizes share a prime that the rest has not: a number of pixels or tokens, not a width of layers."""
    large = [size for size in kept if size >= _SMALL // 16]
    primes = {prime: [size for size in large if size % prime == 0] for prime in _PRIMES}
    total = _bytes(kept)
    shared = [sizes for sizes in primes.values() if len(sizes) >= _REPEATED]
    data = {size for sizes in shared if 2 * sum(size * kept[size] for size in sizes) < total for size in sizes}
    return Counter({size: kept[size] for size in data})


def _assigned(timeline: AllocationTimeline, blocks: I64, copies: _Copies) -> tuple[I64, I64]:
    """Blocks and their categories: parameters, then gradients, are the copy that lies closest together; the rest is state."""
    places = places_of(timeline, blocks, grows_downwards(timeline, blocks))
    blocks, places = blocks[np.argsort(places, kind="stable")], np.sort(places)
    sizes, category = timeline.rows.bytes[blocks], np.full(len(blocks), Category.UNKNOWN, np.int64)
    for is_large in (False, True):
        rest = np.flatnonzero((sizes > _SMALL) == is_large)
        if copies.is_one and is_large:
            rest = rest[~_is_series(sizes[rest])]
        for wanted, kind in (
            (copies.parameters, Category.PARAMETER),
            (copies.gradients, Category.GRADIENT),
            (copies.states, Category.OPTIMIZER_STATE),
        ):
            if kind == Category.PARAMETER:
                first = densest(sizes[rest], places[rest], wanted)
                rest = np.concatenate([rest[first:], rest[:first][::-1]])
            in_turn = rest
            category[in_turn[_numbers(sizes[in_turn]) < np.array([wanted[size] for size in sizes[in_turn].tolist()])]] = kind
            rest = rest[category[rest] == Category.UNKNOWN]
    return blocks, category


def _numbers(values: I64) -> I64:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    ordered, numbers = values[order], np.empty(len(values), np.int64)
    numbers[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return numbers


def _is_series(sizes: I64) -> Bools:
    """Long runs of equal blocks where layers have other runs: a cache, which is allocated apart from the layers."""
    begin = np.flatnonzero(np.append(True, sizes[1:] != sizes[:-1])) if len(sizes) else np.zeros(0, np.int64)
    length = np.diff(np.append(begin, len(sizes)))
    found = np.zeros(len(sizes), np.bool_)
    for size in np.unique(sizes[begin][length >= _SERIES]).tolist():
        of_size = sizes[begin] == size
        longest = max(length[of_size].max(), 2 * np.sum(sizes == size) // 3)
        others = Counter(sizes[begin][~of_size].tolist())
        if np.sum(length[of_size] * 2 >= longest) < _REPEATED <= max(others.values(), default=0):
            for run in np.flatnonzero(of_size & (length * 2 >= longest)).tolist():
                found[begin[run] : begin[run] + length[run]] = True
    return found


def densest(sizes: I64, places: I64, wanted: Counter[int]) -> int:
    """First block of a short stretch of memory that has nearly all blocks of a set of sizes: the first such stretch."""
    missing, listed = Counter(wanted), sizes.tolist()
    left = sum(size * wanted[size] for size in set(listed))
    enough, begin = left * (1 - _MOST), 0
    spans: list[int] = []
    for end, size in enumerate(listed):
        missing[size] -= 1
        left -= size * (missing[size] >= 0)
        while left <= enough and begin <= end:
            spans += [int(places[end]) + size - int(places[begin])] * (begin == len(spans))
            missing[listed[begin]] += 1
            left += listed[begin] * (missing[listed[begin]] > 0)
            begin += 1
    return next((one for one, span in enumerate(spans) if span <= _LONGER * min(spans)), 0)


def _bytes(sizes: Counter[int]) -> int:
    return sum(size * count for size, count in sizes.items())


def places_of(timeline: AllocationTimeline, blocks: I64, downwards: bool) -> I64:
    """Where blocks of one device lie if its segments followed each other without gaps, upwards or downwards; bytes."""
    segments, address = timeline.segments, timeline.rows.address[blocks]
    order = np.flatnonzero(np.isin(segments.device, timeline.rows.device[blocks]))
    order = order[np.argsort(segments.address[order])]
    if not len(order):
        return np.argsort(np.argsort(address, kind="stable"))
    size = segments.bytes[order]
    begin = np.cumsum(size) - size
    begin = begin[-1] + size[-1] - begin - size if downwards else begin
    segment = np.maximum(np.searchsorted(segments.address[order], address, side="right") - 1, 0)
    return np.asarray(begin[segment] + (address - segments.address[order][segment]).astype(np.int64))


def grows_downwards(timeline: AllocationTimeline, blocks: I64) -> bool:
    """Whether later segments have lower addresses: the one with the most blocks is the first one of small blocks."""
    segments, address = np.sort(timeline.segments.address), timeline.rows.address[blocks]
    if not len(segments) or not len(blocks):
        return False
    count = np.bincount(np.maximum(np.searchsorted(segments, address, side="right") - 1, 0), minlength=len(segments))
    return bool(2 * int(count.argmax()) > len(segments))
