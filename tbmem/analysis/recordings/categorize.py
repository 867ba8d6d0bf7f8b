"""Assigns a category to each allocation, from an address book, its lifetime, or rules."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.address_join import join_book
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


def categorize(
    timeline: AllocationTimeline, book: AddressBook | None, table: CategoryTable | None
) -> tuple[AllocationTimeline, Labels]:
    """Assign categories, and the label of each row: by the address book on its devices, by rules on all others."""
    in_book = np.zeros(len(timeline.devices), np.bool_)
    if book is not None and len(book):
        timeline = join_book(timeline, book)
        in_book = np.array([device.name in book.devices for device in timeline.devices], np.bool_)
        timeline = _by_lifetime(timeline, in_book[timeline.rows.device])
    names = tuple(Category.__members__)
    code = timeline.rows.category.astype(np.int64)
    unlabelled = ~in_book[timeline.rows.device] & (timeline.rows.basis == Basis.NONE)
    if unlabelled.any():
        timeline, names, code = _by_rules(timeline, unlabelled, table or DEFAULT_TABLE, names, code)
    return timeline, Labels(names=names, code=code.astype(np.int32))


def _by_lifetime(timeline: AllocationTimeline, in_book: Bools) -> AllocationTimeline:
    """Infer rows without a note from their lifetime: inputs exist before forward, temporaries are freed."""
    rows = timeline.rows
    category, basis = rows.category.copy(), rows.basis.copy()
    inputs = in_book & _is_input(timeline) & ((rows.basis != Basis.KNOWN) | (category == Category.ACTIVATION))
    freed = in_book & (rows.basis == Basis.NONE) & (rows.alloc_event >= 0) & (rows.free_event >= 0) & ~inputs
    category[inputs] = Category.INPUT
    category[freed] = np.where(rows.phase[freed] == Phase.BACKWARD, Category.AUTOGRAD_DETAIL, Category.TEMPORARY)
    basis[inputs | freed] = Basis.INFERRED
    return timeline.with_columns(category=category, basis=basis)


def _is_input(timeline: AllocationTimeline) -> Bools:
    """Allocated outside of forward, backward and optimizer, and still alive when the next forward begins."""
    rows = timeline.rows
    is_input = np.zeros(len(rows), np.bool_)
    for number in range(len(timeline.devices)):
        allocated = np.flatnonzero((rows.device == number) & (rows.alloc_event >= 0))
        allocated = allocated[np.argsort(rows.alloc_event[allocated])]
        # index of the next allocation of a phase from each one on; the length for none
        indices = np.where(rows.phase[allocated] != Phase.OTHER, np.arange(len(allocated)), len(allocated))
        following = np.minimum.accumulate(indices[::-1])[::-1]
        has_next = following < len(allocated)
        has_next &= (rows.phase[allocated] == Phase.OTHER) & (rows.step[allocated] >= 0)
        row, next_row = allocated[has_next], allocated[following[has_next]]
        alive = (rows.free_event[row] < 0) | (rows.free_event[row] > rows.alloc_event[next_row])
        is_input[row] = alive & (rows.phase[next_row] == Phase.FORWARD) & (rows.step[next_row] == rows.step[row])
    return is_input


def _freed_before_next_pass(timeline: AllocationTimeline) -> Bools:
    """Rows with no allocation of a forward or backward pass between alloc and free; state outlives these."""
    rows = timeline.rows
    freed = (rows.alloc_event >= 0) & (rows.free_event >= 0)
    in_pass = (rows.phase == Phase.FORWARD) | (rows.phase == Phase.BACKWARD)
    for number in range(len(timeline.devices)):
        on_device = freed & (rows.device == number)
        events = np.sort(rows.alloc_event[in_pass & (rows.device == number)])
        at_alloc = np.searchsorted(events, rows.alloc_event[on_device], side="right")
        freed[on_device] = at_alloc == np.searchsorted(events, rows.free_event[on_device], side="right")
    return freed


def _by_rules(
    timeline: AllocationTimeline, unlabelled: Bools, table: CategoryTable, names: tuple[str, ...], code: I64
) -> tuple[AllocationTimeline, tuple[str, ...], I64]:
    """Infer from words, then from the phase; optimizer memory that is freed before the next forward is temporary."""
    rows = timeline.rows
    rule = rule_of_rows(timeline, table)
    of_phase = [_OF_PHASE.get(phase, Category.UNKNOWN) for phase in Phase]
    labels = [*(item.label for item in table.rules), UNKNOWN]
    names = tuple(dict.fromkeys((*names, *labels)))
    number = {name: index for index, name in enumerate(names)}
    code_of_rule = np.array([number[label] for label in labels])
    code_of_phase = np.array([number[category.name] for category in of_phase])[rows.phase]
    rule_category = np.array([-1 if item.category is None else int(item.category) for item in table.rules] + [-1])
    inferred = np.where(rule == len(table.rules), code_of_phase, code_of_rule[rule])
    category = np.where(rule_category[rule] < 0, np.array(of_phase)[rows.phase], rule_category[rule])
    temporary = (category == Category.OPTIMIZER_STATE) & _freed_before_next_pass(timeline)
    inferred[temporary], category[temporary] = number[Category.TEMPORARY.name], Category.TEMPORARY
    changed = unlabelled & (inferred != number[UNKNOWN])
    timeline = timeline.with_columns(
        category=np.where(changed, category, rows.category), basis=np.where(changed, Basis.INFERRED, rows.basis)
    )
    return timeline, names, np.where(changed, inferred, code)
