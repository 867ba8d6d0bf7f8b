"""Which free ends which allocation."""

from __future__ import annotations

import numpy as np

from tbmem.sources.events.pairing import pair, pair_by_size, separate_unequal


def test_a_free_ends_the_allocation_before_it_at_the_same_address() -> None:
    #                       0  1  2  3  4  5
    addresses = np.array([7, 9, 7, 7, 9, 9])
    opens = np.array([True, True, False, True, False, False])

    pairs = pair(addresses, opens)

    assert pairs.closed_by.tolist() == [2, 4, -1, -1, -1, -1]
    assert pairs.opened_by.tolist() == [-1, -1, 0, -1, 1, -1]
    assert not pairs.repeated.any()


def test_an_address_that_is_allocated_twice_has_lost_a_free() -> None:
    pairs = pair(np.array([7, 7, 7]), np.array([True, True, False]))

    assert pairs.repeated.tolist() == [True, False, False]
    assert pairs.closed_by.tolist() == [-1, 2, -1]


def test_a_free_of_another_size_is_of_another_allocation() -> None:
    # given an allocation of 9 whose free is missing, like the allocation of 5 that is freed after it
    pairs, parted = separate_unequal(
        pair(np.array([7, 7, 8, 8]), np.array([True, False, True, False])), np.array([9, 5, 3, 3])
    )

    assert pairs.closed_by.tolist() == [-1, -1, 3, -1]
    assert pairs.opened_by.tolist() == [-1, -1, -1, 2]
    assert pairs.repeated.tolist() == [True, False, False, False]
    assert parted == 1


def test_without_addresses_the_youngest_of_the_same_size_is_freed() -> None:
    #                   0  1  2  3  4  5  6
    sizes = np.array([8, 8, 4, 8, 8, 4, 8])
    opens = np.array([True, True, True, False, False, False, True])

    pairs = pair_by_size(sizes, opens)

    assert pairs.closed_by.tolist() == [4, 3, 5, -1, -1, -1, -1]


def test_without_addresses_an_older_free_shifts_nothing() -> None:
    sizes = np.array([8, 8, 8, 8])
    opens = np.array([False, True, False, True])

    pairs = pair_by_size(sizes, opens)

    assert pairs.closed_by.tolist() == [-1, 2, -1, -1]
    assert pairs.opened_by.tolist() == [-1, -1, 1, -1]


def test_nothing_pairs_with_nothing() -> None:
    nothing = np.zeros(0, np.int64)

    assert len(pair(nothing, nothing > 0).closed_by) == 0
    assert len(pair_by_size(nothing, nothing > 0).closed_by) == 0
