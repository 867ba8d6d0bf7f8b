"""Search for variables, keys and attributes whose value or whose graph grows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch

from tbmem.model.evidence import CodeLine, Contents, Holder, HolderKind
from tbmem.sources.program import introspection as plain
from tbmem.sources.program.syntax import Handle, SourceCode
from tbmem.sources.retainers import naming
from tbmem.sources.retainers.candidates import Bench, Candidate
from tbmem.sources.retainers.containers import weigh_elements
from tbmem.sources.retainers.naming import Name
from tbmem.sources.retainers.probes import Probe, SizeProbe, ValueProbe, spot_of
from tbmem.sources.retainers.reachability import Place, Step, Walk
from tbmem.sources.retainers.retained_size import Scale, tensor_bytes
from tbmem.sources.retainers.variable_history import Slot, Slots, is_array, is_measured, size_function
from tbmem.sources.torch_state import autograd_graph as graphs


def grown_values(slots: Slots, walk: Walk, known: set[int]) -> list[tuple[Place, Slot]]:
    """Places whose value has become larger."""
    growing = slots.growing()
    if not growing:
        return []
    places = [one for one in walk.found.values() if id(one.value) not in known and is_measured(one.value)]
    return [(place, growing[place.key()]) for place in places if place.key() in growing]


def add_value(bench: Bench, place: Place, slot: Slot) -> None:
    """Note one place whose value becomes larger."""
    value = place.value
    is_tensor = plain.is_a(value, torch.Tensor) or is_array(value)
    if place.step in (Step.INSIDE, Step.ITEM) or (is_tensor and not slot.is_replaced):
        return
    name = bench.namer.name(place)
    each, contents = _weigh(bench, value, slot)
    if not name.is_users or each * slot.series.per_step < 1:
        return
    holder = bench.holder(place, name, slot.series, bytes_per_element=each, contents=contents)
    candidate = _candidate(bench, place.key(), holder, name)
    candidate.must_be_cumulative = is_tensor and not slot.kept_edge
    if not is_tensor and not slot.is_replaced:
        candidate.read = _grows_in_place(bench, candidate)
    bench.keep(candidate, _probe(place, slot))


def _weigh(bench: Bench, value: Any, slot: Slot) -> tuple[int, Contents]:
    """Bytes of one element (of one byte of a tensor or a text: 1), and what it holds."""
    if plain.length_function(type(value)) is not None:
        return weigh_elements(bench, value, slot.series)
    if type(value) in (tuple, frozenset):
        return weigh_elements(bench, list(value), slot.series)
    if plain.is_a(value, torch.Tensor):
        return 1, Contents.TENSORS if value.grad_fn is None else Contents.GRAPHS
    return 1, Contents.OBJECTS


def _probe(place: Place, slot: Slot) -> Probe:
    length = size_function(type(place.value))
    if slot.is_replaced or length is None:
        return ValueProbe(spot_of(place), _mark, place.value)
    return SizeProbe(place.value, length, spot_of(place))


def add_graphs(bench: Bench, slots: Slots, walk: Walk) -> None:
    """Note the places whose graph goes back to the value of the look before, and so to the first."""
    chained = slots.graphs()
    if not chained:
        return
    scale = Scale(0.1, bench.elsewhere)
    for place in walk.found.values():
        slot = chained.get(place.key()) if plain.is_a(place.value, torch.Tensor) else None
        if slot is not None and place.value.grad_fn is not None:
            _add_graph(bench, place, slot, scale)


def _add_graph(bench: Bench, place: Place, slot: Slot, scale: Scale) -> None:
    """One place; the nodes that have come since the look before last are weighed."""
    root = place.value.grad_fn
    (first, before), (last, _) = slot.numbers[-2:]
    nodes, size = scale.graph(root, before)
    steps = max(last - first, 1)
    if nodes < steps:  # another place has the same graph
        return
    graph = graphs.Graph(20_000, 0.05)
    graph.add(root)
    name = bench.namer.name(place)
    holder = Holder(
        kind=HolderKind.GRAPH,
        name=naming.full_name(name, naming.noun(place)),
        type=type(root).__name__,
        length=len(graph.nodes),
        per_step=nodes / steps,
        contents=Contents.GRAPHS,
        bytes_per_element=size // nodes,
        grows_since=slot.numbers[0][0],
    )
    bench.keep(_candidate(bench, ("graph", place.key()), holder, name), ValueProbe(spot_of(place), _mark, place.value))


def _candidate(bench: Bench, key: Hashable, holder: Holder, name: Name) -> Candidate:
    handle, files, sources = name.handle, bench.files, bench.sources
    candidate = Candidate(key, holder, handle)
    candidate.read = lambda: _best_assignments(sources, handle, files)
    return candidate


def _grows_in_place(bench: Bench, candidate: Candidate) -> Callable[[], Iterable[CodeLine]]:
    """Looks for the lines that write into a buffer, or give it away to be written into; holds no object."""
    handle, files, sources, assigned = candidate.handle, bench.files, bench.sources, candidate.read
    return lambda: sources.filling_lines(handle, files) or assigned()


def _best_assignments(sources: SourceCode, handle: Handle, files: tuple[str, ...]) -> list[CodeLine]:
    """Assignments that use the old value, or else all."""
    found = sources.assignments(handle, files)
    return [line for line, cumulative in found if cumulative] or [line for line, _ in found]


def _mark(value: Any) -> Hashable:
    """Tells values apart; a tensor that was changed in place has another node and the same address."""
    if plain.is_a(value, torch.Tensor):
        number = graphs.number_of(value.grad_fn) if value.grad_fn is not None else 0
        return id(value), number, tensor_bytes(value)
    return id(value)
