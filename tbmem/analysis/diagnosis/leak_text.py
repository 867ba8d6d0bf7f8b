"""Holders and sites as the clauses that a user reads, and as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tbmem.model.evidence import Contents, Holder, HolderKind, LineSource, Site
from tbmem.units import format_bytes, format_count

KNOWN_BY = {
    LineSource.SEEN: "it grew while this line ran",
    LineSource.READ: "read from the source, not observed at run time",
}

ADVICE_FOR_SITES = (
    "find what keeps the result of this line: a graph that is never freed, an extension in C++,"
    " a cycle through autograd"
)
ADVICE_OUT_OF_SIGHT = (
    "look at what the loop calls outside of torch: a C extension, a decoder, a logger's buffer; heaptrack or memray"
    " with native stacks name the caller"
)

_BY_KIND = {
    HolderKind.HOOKS: (
        "a hook that is registered again and again",
        "register the hook once, or remove() its handle after each step",
    ),
    HolderKind.GRAPH: (
        "a graph that is never freed: state carried from step to step with its history",
        "cut the history: use .detach() on the state, .item() for a sum, or run it under torch.no_grad()",
    ),
    HolderKind.TENSOR: (
        "one tensor that is replaced by a larger one",
        "write into a tensor of fixed size, or empty it at the end of each epoch",
    ),
    HolderKind.CONTEXT: (
        "a cycle through autograd that keeps itself alive",
        "use ctx.save_for_backward() instead of an attribute; torch.autograd.grad() instead of"
        " backward(create_graph=True)",
    ),
    HolderKind.GARBAGE: (
        "garbage that only the collector frees",
        "break the cycle (weakref, or del the attribute), or let the collector run",
    ),
    HolderKind.ITERATOR: (
        "an iterator that keeps all elements",
        "make a new iterator for each epoch: while True: for batch in loader: ...",
    ),
    HolderKind.CLOSURES: (
        "a function that is wrapped again and again",
        "wrap the function once, outside of the loop, or keep the original and wrap that",
    ),
    HolderKind.CALLBACKS: (
        "callbacks that are kept until the program ends",
        "register one function once, or atexit.unregister() what is out of date",
    ),
    HolderKind.LRU_CACHE: ("", "give the cache a maxsize that fits, key it on something small, or drop the cache"),
}
"""Cause and advice by the kind of a holder."""
_BY_NAME = {
    "Gcf.figs": ("figures that are never closed", "close each figure when it is done with: plt.close(fig)"),
    "Axes._children": (
        "lines that are added to the same plot",
        "clear the axes before they are drawn again (plt.cla()), or change the data of one line: line.set_data(x, y)",
    ),
}
"""Cause and advice by the name of a registry in a package."""
_BY_CONTENTS = {
    Contents.GRAPHS: ("an output kept with its graph", "keep it without its graph: .detach() or .item()"),
    Contents.VIEWS: ("a view that keeps a large storage", "keep a copy of the part: .clone()"),
    Contents.TENSORS: (
        "tensors that are kept and never dropped",
        "keep only what is needed of them (.item(), .detach().clone() of a part), bound it (deque(maxlen=...)), or"
        " clear it at the end of each epoch",
    ),
    Contents.MODULES: ("modules that are kept and never dropped", "keep a state_dict on disk instead, or bound it"),
    Contents.HOOKS: ("a hook that is registered again and again", "remove() each handle"),
    Contents.OBJECTS: (
        "plain objects that are kept and never dropped",
        "clear it at the end of each epoch, or bound it (deque(maxlen=...))",
    ),
}
"""Cause and advice by contents, where the kind has none."""
_PARTS_WITH_GRAPHS = (
    "keep them without their graph (.detach(), .item()) and of the rest only what is needed (.clone() of a part), or"
    " clear it at the end of each epoch"
)
"""Advice where elements are made of several things, some of which keep a graph."""
_TEXTS = ("str", "bytes", "bytearray")  # whose elements are no objects
_ONE_A_STEP = 0.1  # difference from one element a step up to which the size of each says what comes in a step
_PLURALS = ("tuple", "list", "dict", "set", "deque", "ndarray")
_ELEMENTS = {contents: (contents.value, "") for contents in Contents} | {
    Contents.GRAPHS: ("tensors", ", each keeps its graph"),
    Contents.VIEWS: ("views", ", each keeps its whole storage"),
}
"""What the elements are called, and what each of them keeps."""


def held_by(holder: Holder, others: Sequence[Holder], step: int) -> str:
    """``held by list 'history' in train() at train.py:57  history.append(loss) · 48 tensors as of step 52, ...``.

    ``step`` is the one in which the holder was looked at: it holds more by the end of the run.
    """
    clauses = [f"held by {holder.name}{_place(holder)}", _contents(holder, step)]
    if holder.kind is HolderKind.LRU_CACHE:
        hits = f"{format_count(holder.hits)} hits" if holder.hits else "never hit"
        bound = f"bounded at {format_count(holder.bound)}" if holder.bound is not None else "without a bound"
        clauses.append(f"{hits}, {bound}")
    if others:
        clauses.append("and by " + ", ".join(f"{other.name}{_place(other)} ({_gain(other)})" for other in others[:3]))
    return " · ".join(clauses)


def grows_along(holder: Holder, rate: float, step: int) -> str:
    """``list 'handlers' at log.py:26  logger.addHandler(h) grows along and explains 20 % · 362 objects seen ...``.

    ``rate``: bytes per step of all that grows.
    """
    share = f"{100 * holder.bytes_per_step / rate:.0f} %"
    return f"{holder.name}{_place(holder)} grows along and explains {share} · {_contents(holder, step)}"


def fills_up(holder: Holder, step: int) -> str:
    """``deque 'buffer' in main() fills: 25 of 40 as of step 49, full by about step 64, at 2.34 MiB``."""
    bound, left = holder.bound or 0, holder.steps_left or 0
    size = format_bytes(bound * holder.bytes_per_element)
    return (
        f"{holder.name}{_place(holder)} fills: {format_count(holder.length)} of {format_count(bound)}"
        f" as of step {format_count(step)}, full by about step {format_count(step + left)}, at {size}"
    )


def refilled(holder: Holder, step: int) -> str:
    """``list 'saved' in play() at ac.py:25  saved.append(x) keeps nothing from step to step · 150 tensors ...``."""
    contents = _contents(holder, step)
    if holder.kind is HolderKind.GRAPH:
        return f"{holder.name}{_place(holder)} carries a graph for some steps and lets it go · {contents}"
    return f"{holder.name}{_place(holder)} keeps nothing from step to step · {contents}"


def survives(site: Site, beside: Sequence[Holder]) -> str:
    """``allocated at model.py:12  y = x.tanh() · what 7 of 7 watched steps allocated there is still alive``."""
    where = f"allocated at {site.stack[0]}" if site.stack else f"allocated by {site.operator or 'an operator'}"
    where += " (in the backward pass)" if site.in_backward else ""
    alive = f"what {site.generations} of {site.steps} watched steps allocated there is still alive"
    sentence = f"{where} · {alive}, {format_bytes(site.bytes_per_step)} a step"
    if not beside:
        return f"{sentence} · no Python object that holds it was found"
    return f"{sentence} · grows along with it: " + ", ".join(f"{each.name}{_place(each)}" for each in beside[:2])


def grows_rarely(gap: int) -> str:
    """``memory grows in one of about 100 steps``."""
    return f"memory grows in one of about {format_count(gap)} steps"


def search_cut_short(seconds: float) -> str:
    """``the search for holders was cut short: in this heap it takes 3 s of a processor``."""
    return f"the search for holders was cut short: in this heap it takes {math.ceil(seconds)} s of a processor"


def advice_on_search(seconds: float) -> str:
    """What to do where a search of so many seconds was cut short; twice as many leave room."""
    return f"let it take longer, by evidence.max_seconds={math.ceil(2 * seconds)}"


def advice_on_rare_growth(steps: int) -> str:
    """What to do where too few of the steps in which memory grows were watched; so many are enough."""
    return (
        "look at what is done only in such a step: a validation, a checkpoint, a log; or watch for longer, by"
        f" evidence.steps={steps}"
    )


def cause_of(holder: Holder) -> str:
    """The kind of leak in words."""
    if holder.kind is HolderKind.LRU_CACHE and holder.hits == 0:
        return "an unbounded cache without a hit"
    return _cure(holder, 0)


def cause_of_site(site: Site) -> str:
    """The kind of leak in words, where no holder is known."""
    outside = "memory that is never freed, held outside of Python"
    return "a graph that was never freed" if site.in_backward else outside


def advice_for(holder: Holder, *, on_accelerator: bool) -> str:
    """What to do about a leak of an accelerator's memory, or of the host's."""
    advice = _cure(holder, 1)
    if holder.contents is Contents.GRAPHS and holder.element_type and advice == _BY_CONTENTS[Contents.GRAPHS][1]:
        return _PARTS_WITH_GRAPHS
    can_move = holder.contents is Contents.TENSORS and advice == _BY_CONTENTS[Contents.TENSORS][1]
    return f"move them to the CPU, or {advice}" if can_move and on_accelerator else advice


def advice_for_all(holders: Sequence[Holder], *, on_accelerator: bool) -> str:
    """What to do about what several objects hold; of which of them, where they need different things."""
    advices: dict[str, str] = {}  # the first holder that needs it, by advice
    for each in holders:
        advices.setdefault(advice_for(each, on_accelerator=on_accelerator), each.name)
    if len(advices) == 1:
        return next(iter(advices))
    return "; ".join(f"{name}: {advice}" for advice, name in advices.items())


def _cure(holder: Holder, part: int) -> str:
    """Cause (``part`` 0) or advice (1): by the holder's name, else by its kind, else by its contents."""
    known = _BY_NAME.get(holder.name) or _BY_KIND.get(holder.kind, ("", ""))
    return known[part] or _BY_CONTENTS[holder.contents][part]


def as_dict(holder: Holder) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "name": holder.name,
        "kind": holder.kind.value,
        "type": holder.type,
        "contents": holder.contents.value,
        "element_type": holder.element_type,
        "length": holder.length,
        "per_step": round(holder.per_step, 3),
        "bytes_per_element": holder.bytes_per_element,
        "bytes_per_step": round(holder.bytes_per_step),
        "bound": holder.bound,
        "hits": holder.hits,
        "line": asdict(holder.lines[0]) if holder.lines else None,
        "line_known_by": holder.known_by.value if holder.lines else None,
    }


def site_as_dict(site: Site) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "operator": site.operator,
        "in_backward": site.in_backward,
        "generations": site.generations,
        "watched_steps": site.steps,
        "bytes_per_step": round(site.bytes_per_step),
        "stack": [asdict(line) for line in site.stack],
    }


def _place(holder: Holder) -> str:
    return f" at {holder.lines[0]}" if holder.lines else ""


def _contents(holder: Holder, step: int) -> str:
    size, gain = format_bytes(holder.bytes_per_element), _gain(holder)
    if holder.kind is HolderKind.GRAPH:
        return f"its graph, as of step {step}, is {format_count(holder.length)} nodes long and {gain}"
    if holder.kind is HolderKind.TENSOR:
        return f"it {gain}"
    if holder.type in _TEXTS:
        return f"{format_bytes(holder.length * holder.bytes_per_element)} as of step {step}, it {gain}"
    elements, keeps = _elements(holder)
    in_all = "" if abs(holder.per_step - 1) < _ONE_A_STEP else f", {_rate(holder)}"
    return f"{format_count(holder.length)} {elements} as of step {step}{keeps} ({size} each{in_all})"


def _gain(holder: Holder) -> str:
    return f"gains {_rate(holder)}"


def _rate(holder: Holder) -> str:
    return f"{format_bytes(holder.bytes_per_step)} a step"


def _elements(holder: Holder) -> tuple[str, str]:
    """What the elements are called (``'tuples with tensors'``), and what each of them keeps."""
    if holder.kind in (HolderKind.CLOSURES, HolderKind.CALLBACKS):
        return holder.kind.value, ""
    elements, keeps = _ELEMENTS[holder.contents]
    if not holder.element_type or holder.contents not in (Contents.GRAPHS, Contents.VIEWS, Contents.TENSORS):
        return elements, keeps
    is_plain = holder.element_type in _PLURALS
    return f"{holder.element_type}{'s' if is_plain else ' objects'} with {elements}", keeps
