"""What happens in each Python process of a rehearsal when torch has been imported."""

from __future__ import annotations

import os

from tbmem.rehearsal.device_reads import watch
from tbmem.rehearsal.environment import LIBRARY, Order
from tbmem.rehearsal.object_collectives import keep_object_sizes
from tbmem.rehearsal.torch_answers import valid_distributions


def prepare() -> None:
    """Watch what is read from the device; in a program that is rehearsed, also its steps."""
    watch(os.environ[LIBRARY])
    keep_object_sizes()
    valid_distributions()
    order = Order.of_this_process()
    if order is not None:
        _follow(order)


def _follow(order: Order) -> None:
    # imported only in processes that are watched: both load much
    from tbmem.rehearsal.one_rank import join_world
    from tbmem.rehearsal.session import attach

    if order.world_size:
        join_world(order.rank, order.world_size)
    attach(order)
