"""Forks of the process go in; the number of the process that runs comes out, without asking the kernel each time."""

from __future__ import annotations

import os


class Process:
    """This process; ``Process.number`` is what ``os.getpid()`` says, a child's own after a fork."""

    number = os.getpid()


def _after_fork() -> None:
    Process.number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
