"""Logs an error inside tbmem once and switches the failed part off."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tbmem.present.lines import get_logger

WRITING = "writing to the run folder"
"""The part of all files: a full disk affects all of them."""

P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """Keeps errors of tbmem's parts out of the training loop; ``problems`` appears in the run's summary."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.failed: set[str] = set()

    def run(self, part: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a part and return its result, or ``None`` if the part has failed, now or earlier."""
        if part in self.failed:
            return None
        try:
            return call(*args, **kwargs)
        except Exception as error:
            self.fail(part, error)
            return None

    def fail(self, part: str, error: BaseException) -> None:
        """Switch ``part`` off and log the error."""
        if part not in self.failed:
            self.failed.add(part)
            reason = (str(error).splitlines() or [""])[0]  # CUDA's errors have several lines
            self.problems.append(f"{part} is off: {type(error).__name__}: {reason}")
            get_logger().warning("%s; training goes on", self.problems[-1])
            get_logger().debug("%s failed", part, exc_info=error)
