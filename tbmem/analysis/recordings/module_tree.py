"""The tree of modules at the peak, and a table of modules with repeated layers merged."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from tbmem.analysis.recordings.breakdown import PeakState, percent, sums
from tbmem.analysis.recordings.result import ModuleShare, Share
from tbmem.model.category import Category
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline

NO_MODULE = "(no module)"
_NUMBER = re.compile(r"(?<=[._])\d+(?=\.|$)|(?<=^)\d+(?=\.)")
_OF_PARAMETER = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT)


def module_codes(timeline: AllocationTimeline) -> tuple[I64, tuple[str, ...]]:
    """Number of each row's module, -1 for none, and the modules' paths.

    It is that of the row's name in the model, else the one whose forward allocated it.
    Traces name classes, numbered in call order, and no paths in the model. With an address book nearly all long-lived
    memory has a name, and a saved tensor belongs to the module that saved it.
    """
    rows = timeline.rows
    numbers = {path: number for number, path in enumerate(timeline.modules)}
    code = rows.module.astype(np.int64)
    named = np.flatnonzero(rows.name >= 0)
    pairs = rows.name[named].astype(np.int64) * len(Category) + rows.category[named]
    unique, inverse = np.unique(pairs, return_inverse=True)
    paths = [_path(timeline.names[pair // len(Category)], Category(pair % len(Category))) for pair in unique.tolist()]
    of_pair = np.array([numbers.setdefault(path, len(numbers)) for path in paths] or [-1], np.int64)
    code[named] = of_pair[inverse.reshape(-1)]
    return code, tuple(numbers)


def _path(name: str, category: Category) -> str:
    """Path of the module that a named tensor belongs to; an activation is named after the module that saved it."""
    if category is Category.OPTIMIZER_STATE:
        name = name.rpartition(".")[0]
    elif category not in _OF_PARAMETER:
        return name
    return name.rpartition(".")[0] or name


def module_tree(state: PeakState, code: I64, paths: tuple[str, ...]) -> ModuleShare:
    """The tree of modules at the peak; rows without a module are below ``'(no module)'``."""
    sizes = _by_path(state, code, paths)
    children: defaultdict[str, set[str]] = defaultdict(set)
    for path in sizes:
        while path:
            parent = path.rpartition(".")[0]
            children[parent].add(path)
            path = parent
    return _node("", sizes, children, state.peak.bytes)


def _by_path(state: PeakState, code: I64, paths: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Bytes and rows at the peak of each module without its children."""
    alive = state.alive
    size = sums(code[alive], state.timeline.rows.bytes[alive], len(paths) + 1)
    count = sums(code[alive], np.ones(len(alive), np.int64), len(paths) + 1)
    size[-1] += state.unlisted
    names = (*paths, NO_MODULE)
    return {names[index]: (int(size[index]), int(count[index])) for index in np.flatnonzero(size | count).tolist()}


def _node(path: str, sizes: dict[str, tuple[int, int]], children: Mapping[str, set[str]], total: int) -> ModuleShare:
    nodes = [_node(child, sizes, children, total) for child in sorted(children.get(path, ()))]
    nodes.sort(key=lambda node: -node.bytes)
    own_bytes, count = sizes.get(path, (0, 0))
    size = own_bytes + sum(node.bytes for node in nodes)
    return ModuleShare(
        name=path.rpartition(".")[2],
        path=path,
        bytes=size,
        own_bytes=own_bytes,
        count=count + sum(node.count for node in nodes),
        percent=percent(size, total),
        children=tuple(nodes),
    )


def merge_layers(path: str) -> str:
    """``'model.layers.11.mlp'`` as ``'model.layers.*.mlp'``; ``'Block_3.Linear_12'`` as ``'Block_*.Linear_*'``."""
    return _NUMBER.sub("*", path)


def merged_modules(state: PeakState, code: I64, paths: tuple[str, ...]) -> tuple[Share, ...]:
    """Bytes at the peak of modules without their children, repeated layers merged, the largest first."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path, (size, count) in _by_path(state, code, paths).items():
        sizes[merge_layers(path)] += size
        counts[merge_layers(path)] += count
    return tuple(
        Share(name=name, bytes=size, count=counts[name], percent=percent(size, state.peak.bytes))
        for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    )
