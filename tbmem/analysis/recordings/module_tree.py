"""The tree of modules at the peak, and its repeated layers merged."""

from __future__ import annotations

import re

import numpy as np

from tbmem.analysis.recordings.breakdown import Moment, percent, sums
from tbmem.analysis.recordings.result import ModuleShare, Share
from tbmem.model.category import Category
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline

NO_MODULE = "(no module)"
_NUMBER = re.compile(r"(?<=[._])\d+(?=\.|$)|(?<=^)\d+(?=\.)")
_OF_PARAMETER = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT)


def module_codes(timeline: AllocationTimeline) -> tuple[I64, tuple[str, ...]]:
    """Module of each row: the one that its name tells, else the one whose forward asked for it.

    A name is a path in the model; what a trace has are classes that are numbered as they are called. With an address
    book nearly all that lives long has a name, so one tree holds it: a saved tensor belongs to whoever saved it.

    Returns:
        Number per row, -1 for none, and the modules' paths.
    """
    rows = timeline.rows
    numbers = {path: number for number, path in enumerate(timeline.modules)}
    code = rows.module.astype(np.int64)
    named = np.flatnonzero(rows.name >= 0)
    pairs = rows.name[named].astype(np.int64) * len(Category) + rows.category[named]
    unique, place = np.unique(pairs, return_inverse=True)
    paths = [_path(timeline.names[pair // len(Category)], Category(pair % len(Category))) for pair in unique.tolist()]
    of_pair = np.array([numbers.setdefault(path, len(numbers)) for path in paths] or [-1], np.int64)
    code[named] = of_pair[place.reshape(-1)]
    return code, tuple(numbers)


def _path(name: str, category: Category) -> str:
    """Path of the module that a named tensor belongs to; an activation has the name of the module that saved it."""
    if category in _OF_PARAMETER:
        return name.rpartition(".")[0] or name
    if category is Category.OPTIMIZER_STATE:
        parameter = name.rpartition(".")[0]
        return parameter.rpartition(".")[0] or parameter
    return name


def module_tree(moment: Moment, code: I64, paths: tuple[str, ...]) -> ModuleShare:
    """The tree of modules at the peak; what belongs to none is below ``'(no module)'``."""
    own = _by_path(moment, code, paths)
    children: dict[str, set[str]] = {"": set()}
    for path in own:
        while path:
            parent = path.rpartition(".")[0]
            children.setdefault(parent, set()).add(path)
            children.setdefault(path, set())
            path = parent
    return _node("", own, children, moment.total)


def _by_path(moment: Moment, code: I64, paths: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Bytes and number of the rows of each module itself, at the peak."""
    alive = moment.alive
    size = sums(code[alive], moment.timeline.rows.bytes[alive], len(paths) + 1)
    count = sums(code[alive], np.ones(len(alive), np.int64), len(paths) + 1)
    size[-1] += moment.unlisted
    names = (*paths, NO_MODULE)
    return {names[place]: (int(size[place]), int(count[place])) for place in np.flatnonzero(size | count).tolist()}


def _node(path: str, own: dict[str, tuple[int, int]], children: dict[str, set[str]], total: int) -> ModuleShare:
    below = [_node(child, own, children, total) for child in sorted(children.get(path, ()))]
    below.sort(key=lambda node: -node.bytes)
    size, count = own.get(path, (0, 0))
    whole = size + sum(node.bytes for node in below)
    return ModuleShare(
        name=path.rpartition(".")[2],
        path=path,
        bytes=whole,
        own_bytes=size,
        count=count + sum(node.count for node in below),
        percent=percent(whole, total),
        children=tuple(below),
    )


def merge_layers(path: str) -> str:
    """``'model.layers.11.mlp'`` as ``'model.layers.*.mlp'``; ``'Block_3.Linear_12'`` as ``'Block_*.Linear_*'``."""
    return _NUMBER.sub("*", path)


def merged_modules(moment: Moment, code: I64, paths: tuple[str, ...]) -> tuple[Share, ...]:
    """Bytes of the modules themselves at the peak, repeated layers put together, the largest first."""
    found: dict[str, list[int]] = {}
    for path, (size, count) in _by_path(moment, code, paths).items():
        entry = found.setdefault(merge_layers(path), [0, 0])
        entry[0] += size
        entry[1] += count
    ordered = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(
        Share(name=name, bytes=size, count=count, percent=percent(size, moment.total))
        for name, (size, count) in ordered
    )
