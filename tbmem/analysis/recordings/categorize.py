"""Labels each allocation with what it is for: by an address book, by when it lived, or by rules."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.address_join import join_book, known_devices
from tbmem.analysis.recordings.category_rules import DEFAULT_TABLE, UNKNOWN, CategoryTable, rule_of_rows
from tbmem.analysis.recordings.result import Labels
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.timeline import AllocationTimeline

_OF_PHASE = {
    Phase.FORWARD: Category.ACTIVATION,
    Phase.BACKWARD: Category.GRADIENT,
    Phase.OPTIMIZER: Category.OPTIMIZER_STATE,
}


def label(
    timeline: AllocationTimeline, book: AddressBook | None, table: CategoryTable | None
) -> tuple[AllocationTimeline, Labels]:
    """Say what each allocation is for.

    Devices of which the book speaks are labelled by it, all others by the table's rules.

    Returns:
        The timeline with ``category``, ``basis`` and ``name`` filled in, and the words.
    """
    known = np.zeros(len(timeline.devices), np.bool_)
    if book is not None and len(book):
        timeline = join_book(timeline, book)
        known = known_devices(timeline, book)
        timeline = _by_lifetime(timeline, known[timeline.rows.device])
    names = tuple(Category.__members__)
    code = timeline.rows.category.astype(np.int64)
    foreign = ~known[timeline.rows.device] & (timeline.rows.basis == Basis.NONE)
    if foreign.any():
        timeline, names, code = _by_rules(timeline, foreign, table or DEFAULT_TABLE, names, code)
    return timeline, Labels(names=names, code=code.astype(np.int32))


def _by_lifetime(timeline: AllocationTimeline, which: Bools) -> AllocationTimeline:
    """What no note speaks of is told by when it lived: inputs are there before forward, temporaries go."""
    rows = timeline.rows
    category, basis = rows.category.copy(), rows.basis.copy()
    inputs = which & _is_input(timeline) & ((rows.basis != Basis.KNOWN) | (category == Category.ACTIVATION))
    freed = which & (rows.basis == Basis.NONE) & (rows.alloc_event >= 0) & (rows.free_event >= 0) & ~inputs
    category[inputs] = Category.INPUT
    category[freed] = np.where(rows.phase[freed] == Phase.BACKWARD, Category.AUTOGRAD_DETAIL, Category.TEMPORARY)
    basis[inputs | freed] = Basis.INFERRED
    return timeline.with_columns(category=category, basis=basis)


def _is_input(timeline: AllocationTimeline) -> Bools:
    """Made outside of forward, backward and optimizer, and still there when the next forward begins."""
    rows = timeline.rows
    found = np.zeros(len(rows), np.bool_)
    for number in range(len(timeline.devices)):
        own = np.flatnonzero((rows.device == number) & (rows.alloc_event >= 0))
        own = own[np.argsort(rows.alloc_event[own])]
        follower = _next(rows.phase[own] != Phase.OTHER)
        has_one = (follower < len(own)) & (rows.phase[own] == Phase.OTHER) & (rows.step[own] >= 0)
        mine, its = own[has_one], own[follower[has_one]]
        alive = (rows.free_event[mine] < 0) | (rows.free_event[mine] > rows.alloc_event[its])
        found[mine] = alive & (rows.phase[its] == Phase.FORWARD) & (rows.step[its] == rows.step[mine])
    return found


def _next(marked: Bools) -> I64:
    """Place of the next marked element from each one on; the length for none."""
    places = np.where(marked, np.arange(len(marked)), len(marked))
    found: I64 = np.minimum.accumulate(places[::-1])[::-1]
    return found


def _gone_before_the_next_pass(timeline: AllocationTimeline) -> Bools:
    """Made and freed with nothing of a forward or backward pass between: state that is replaced outlives these."""
    rows = timeline.rows
    found = (rows.alloc_event >= 0) & (rows.free_event >= 0)
    in_pass = (rows.phase == Phase.FORWARD) | (rows.phase == Phase.BACKWARD)
    for number in range(len(timeline.devices)):
        own = found & (rows.device == number)
        events = np.sort(rows.alloc_event[in_pass & (rows.device == number)])
        until = [np.searchsorted(events, event[own], side="right") for event in (rows.alloc_event, rows.free_event)]
        found[own] = until[0] == until[1]
    return found


def _by_rules(
    timeline: AllocationTimeline, which: Bools, table: CategoryTable, names: tuple[str, ...], code: I64
) -> tuple[AllocationTimeline, tuple[str, ...], I64]:
    """Guess by words, then by phase; what an optimizer makes and frees before the next forward is no state."""
    rows = timeline.rows
    rule = rule_of_rows(timeline, table)
    words = [*(one.label for one in table.rules), UNKNOWN]
    phase_category = np.array([_OF_PHASE.get(Phase(number), Category.UNKNOWN) for number in range(len(Phase))])
    of_rule = np.array([-1 if one.category is None else int(one.category) for one in table.rules] + [-1])
    names = tuple(dict.fromkeys((*names, *words)))
    number = {name: place for place, name in enumerate(names)}
    code_of_rule = np.array([number[word] for word in words])
    code_of_phase = np.array([number[Category(category).name] for category in phase_category.tolist()])
    phase = rows.phase.astype(np.int64)
    without = rule == len(table.rules)
    guess = np.where(without, code_of_phase[phase], code_of_rule[rule])
    category = np.where(of_rule[rule] < 0, phase_category[phase], of_rule[rule])
    brief = (category == Category.OPTIMIZER_STATE) & _gone_before_the_next_pass(timeline)
    guess, category = (
        np.where(brief, number[Category.TEMPORARY.name], guess),
        np.where(brief, Category.TEMPORARY, category),
    )
    told = which & (guess != number[UNKNOWN])
    code = np.where(told, guess, code)
    timeline = timeline.with_columns(
        category=np.where(told, category, rows.category), basis=np.where(told, Basis.INFERRED, rows.basis)
    )
    return timeline, names, code
