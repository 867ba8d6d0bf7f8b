"""Infers what blocks that are older than the recording are for, from their sizes, addresses and frees.

Such blocks have no event and usually no stack. Parameters, gradients and optimizer state are copies of one set of
sizes: as many of each as a backward pass leaves gradients, in the order in which they were made. What this does not
explain stays unknown.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from tbmem.analysis.recordings.copies_of_blocks import MOST, REPEATED, Copies, assigned, total_bytes
from tbmem.model.category import Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import KIB, MIB

_STATES = {"adam": 2, "adamw": 2, "adamax": 2, "nadam": 2, "radam": 2, "sgd": 1, "rmsprop": 2, "adagrad": 1, "lion": 1}
"""Most copies of a parameter's size that an optimizer keeps as state, by the name of its file."""
_OPTIMIZER_FILE = re.compile(r"optim\w*/_?(\w+)\.py$")
_WORKSPACES = (8_519_680, 32 * MIB)
"""Bytes of cuBLAS's workspaces in torch: before Hopper, and from Hopper on."""
_PRIMES = tuple(n for n in range(17, 1000) if all(n % divisor for divisor in range(2, 32)) or n in (17, 19, 23, 29, 31))
"""Prime factors that widths of layers rarely have."""
_SHORT = 64
"""Events within which most activations are freed where no backward pass needs them."""
_TRAINED = 0.05
"""Least share of the blocks that stay that has gradients; below it, gradients were not made anew."""
_STEP_BYTES = 4
"""Size of the number of steps that fused optimizers keep on the device, one per parameter."""
_COVERED = 0.8
"""Least share of the bytes whose gradients are seen in a backward pass if they are kept."""
_LAYERS = 0.67
"""Least share of blocks of repeated sizes that make a model where no event tells."""
_WEIGHT = 64 * KIB
"""From this size on, weights without gradients may be data."""
_LEAST = 0.01
"""Share from which on a size matters."""


class _Passes(NamedTuple):
    """What the recording shows of training."""

    gradients: Counter[int]
    """Blocks that a backward pass leaves, by size."""
    released: bool
    """Gradients that are older than the recording are freed in it."""
    allocated: Counter[int]
    """Blocks that it allocates, by size."""
    has_backward: bool
    saves_nothing: bool
    """Forward passes keep nothing for a backward pass."""
    states: int | None
    """Most copies that the optimizer keeps; ``None`` if no step was recorded."""


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
        stay, category_of_stay = assigned(timeline, device, stay, copies)
        category[stay] = category_of_stay
    found = older[category[older] != Category.UNKNOWN]
    return found, category[found]


def _passes(timeline: AllocationTimeline, device: int, released: Counter[int]) -> _Passes:
    rows = timeline.rows
    made = np.flatnonzero((rows.device == device) & (rows.alloc_event >= 0))
    made = made[np.argsort(rows.alloc_event[made], kind="stable")]
    phase = rows.phase[made]
    forward = made[phase == Phase.FORWARD]
    lifetime = (
        np.where(rows.free_event[forward] < 0, np.iinfo(np.int64).max, rows.free_event[forward])
        - rows.alloc_event[forward]
    )
    backward, left = _backward(timeline, made)
    gradients = released or Counter(rows.bytes[left].tolist())
    has_step = bool(released) or bool((rows.free_event[left] >= 0).any())
    elsewhere = Counter(rows.bytes[made[~np.isin(phase, (Phase.FORWARD, Phase.BACKWARD))]].tolist())
    has_temporaries = 2 * (elsewhere & gradients).total() >= gradients.total()
    return _Passes(
        gradients=gradients,
        released=bool(released),
        allocated=Counter(rows.bytes[backward].tolist()),
        has_backward=bool((phase == Phase.BACKWARD).any()),
        saves_nothing=len(forward) > 0 and float(np.quantile(lifetime, 0.75)) <= _SHORT,
        states=_optimizer_states(timeline, has_step and not has_temporaries),
    )


def _backward(timeline: AllocationTimeline, made: I64) -> tuple[I64, I64]:
    """What one backward pass allocates, and what of it it does not free; of several passes the one that leaves most."""
    rows = timeline.rows
    phase, most = rows.phase[made], (made[:0], made[:0])
    number = np.cumsum(np.isin(phase, (Phase.FORWARD, Phase.OPTIMIZER)))
    in_backward = np.flatnonzero(phase == Phase.BACKWARD)
    for inside in np.split(in_backward, np.flatnonzero(np.diff(number[in_backward])) + 1):
        span = made[inside[0] : inside[-1] + 1] if len(inside) else made[:0]
        left = span[(rows.free_event[span] < 0) | (rows.free_event[span] > rows.alloc_event[span[-1:]])]
        most = max(most, (span, left), key=lambda pair: int(rows.bytes[pair[1]].sum()))
    return most


def _optimizer_states(timeline: AllocationTimeline, is_silent: bool) -> int | None:
    """Most copies that the optimizers keep: by their files, else one if a step allocates nothing."""
    files = {frame.file.replace("\\", "/").lower() for frame in timeline.stacks.frames}
    names = {match[1] for file in files if (match := _OPTIMIZER_FILE.search(file))}
    unseen = 1 if is_silent and len(timeline.stacks) and not names else None
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
    order = np.argsort(position, kind="stable")
    for together in np.split(order, np.flatnonzero(np.diff(position[order])) + 1) if len(go) else ():
        inside_backward = before[together[0]] == after[together[0]] == Phase.BACKWARD
        sizes = Counter(rows.bytes[go[together]].tolist())
        if len(together) >= REPEATED and not inside_backward and not sizes - kept:
            found[together] = Category.GRADIENT
    replaced = (before == Phase.OPTIMIZER) & np.isin(rows.bytes[go], list(kept)) & (found == Category.UNKNOWN)
    found[replaced] = Category.OPTIMIZER_STATE
    return found


def _copies(kept: Counter[int], passes: _Passes) -> Copies | None:
    """How the blocks that stay are divided; ``None`` if the recording does not tell."""
    kept = Counter({size: count for size, count in kept.items() if size not in _WORKSPACES or count >= REPEATED})
    if passes.has_backward:
        few = not passes.released and (passes.gradients & kept).total() < _TRAINED * kept.total()
        return (few and _beside_kept_gradients(kept, passes)) or _beside_gradients(kept, passes)
    number, divisor = _number_of_copies(kept), _common_divisor(kept)
    if number > 2 and divisor in (number, 2 * number):  # otherwise there are as many layers, and one copy
        return _divided(kept, number, gradients=number - 3) if divisor == number else None
    is_model = number == 1 and sum(n for n in kept.values() if n >= REPEATED) >= _LAYERS * kept.total()
    return Copies(kept - _sizes_of_data(kept)) if is_model or passes.saves_nothing else None


def _beside_gradients(kept: Counter[int], passes: _Passes) -> Copies | None:
    """Parameters and state, by the number of gradients of each size; layers without gradients are frozen."""
    trained = passes.gradients & kept
    if not trained or trained.total() < _TRAINED * kept.total() and _is_covered(kept, passes.allocated, 4):
        return None
    has_steps = kept[_STEP_BYTES] >= MOST * trained.total() - 1
    most = 2 if passes.states is None or has_steps else passes.states
    moments = max(number for number in range(most + 1) if _share(trained, kept, 1 + number) >= MOST)
    state = Counter({size: moments * min(count, kept[size] // (1 + moments)) for size, count in trained.items()})
    if has_steps:
        state[_STEP_BYTES] = kept[_STEP_BYTES]
    frozen = {size: count for size, count in kept.items() if size not in trained and size >= _WEIGHT}
    has_layers = sum(count >= REPEATED for count in frozen.values()) > 1
    return Copies(kept - state - Counter({} if has_layers else frozen), states=state)


def _is_covered(kept: Counter[int], allocated: Counter[int], copies: int) -> bool:
    """Whether a backward pass allocates as many blocks of each size as a copy has."""
    covered = sum(size * min(allocated[size] * copies, count) for size, count in kept.items())
    return covered >= _COVERED * total_bytes(kept)


def _share(trained: Counter[int], kept: Counter[int], copies: int) -> float:
    """How much of the gradients has this many copies of its size among the blocks that stay."""
    enough = sum(size * min(count, kept[size] // copies) for size, count in trained.items())
    return enough / max(total_bytes(trained), 1)


def _beside_kept_gradients(kept: Counter[int], passes: _Passes) -> Copies | None:
    """Gradients that stay are one of the copies."""
    number = _number_of_copies(kept)
    if number < 2:  # sizes of buffers may repeat otherwise
        number = _common_divisor(kept)
    one = _divided(kept, number) if 2 <= number <= 2 + (2 if passes.states is None else passes.states) else None
    is_made_anew = one and 2 * total_bytes(passes.gradients & one.parameters) >= total_bytes(one.parameters)
    return None if is_made_anew or not _is_covered(kept, passes.allocated, number) else one


def _divided(kept: Counter[int], number: int, gradients: int = 1) -> Copies:
    """Copies of which one is of parameters, and none or one of gradients."""
    one = Counter({size: count // number for size, count in kept.items() if count % number == 0})
    rest = number - 1 - gradients
    state = Counter({size: rest * count for size, count in one.items()})
    return Copies(one, one if gradients else Counter(), state)


def _number_of_copies(kept: Counter[int]) -> int:
    """The largest number, up to four, that divides how often nearly all sizes occur; 0 if all occur once or twice."""
    if max(kept.values(), default=0) < REPEATED:
        return 0
    divided = {number: Counter({size: n for size, n in kept.items() if n % number == 0}) for number in (1, 2, 3, 4)}
    return max(
        number
        for number, part in divided.items()
        if part.total() >= MOST * kept.total() and total_bytes(part) >= MOST * total_bytes(kept)
    )


def _common_divisor(kept: Counter[int]) -> int:
    """Of how often each size occurs, without what is little."""
    return math.gcd(*(n for size, n in kept.items() if size * n >= _LEAST * total_bytes(kept)))


def _sizes_of_data(kept: Counter[int]) -> Counter[int]:
    """Blocks whose sizes share a prime that the rest has not: a number of pixels or tokens, not a width of layers."""
    large = [size for size in kept if size >= _WEIGHT]
    primes = {prime: [size for size in large if size % prime == 0] for prime in _PRIMES}
    total = total_bytes(kept)
    shared = [sizes for sizes in primes.values() if len(sizes) >= REPEATED]
    data = {size for sizes in shared if 2 * sum(size * kept[size] for size in sizes) < total for size in sizes}
    return Counter({size: kept[size] for size in data})
