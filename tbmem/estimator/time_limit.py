"""Ends a job that takes too long, where it is, so that the line can be named."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from tbmem.estimator.refusals import REHEARSE

_INTERVAL = 10.0
"""Seconds between two looks at a job."""
_ENOUGH_TOKENS = 4
"""Tokens from which the duration of a token is computed."""


class TimeLimitError(BaseException):
    """The job takes longer than it may; not an Exception, which the job's own code may catch."""


@contextlib.contextmanager
def time_limit(seconds: float, deadline: float) -> Iterator[None]:
    """Raise TimeLimitError in the main thread once the job cannot be done by the deadline.

    Args:
        seconds: The limit that the message names.
        deadline: As of ``time.monotonic()``.
    """
    generation = _Generation()

    def look(_: int = 0, frame: FrameType | None = None) -> None:
        now = time.monotonic()
        if now >= deadline:
            raise TimeLimitError(
                f"not done after {seconds:.0f} s: each operator of each pass is run on fake tensors; take fewer passes"
                f" in a step (tokens, samples), or {REHEARSE}"
            )
        if (needed := generation.seconds_left(frame, now)) > deadline - now:
            raise TimeLimitError(
                f"generate() needs about {needed:.0f} s more for its {generation.total} tokens, beyond the limit of"
                f" {seconds:.0f} s; take fewer (max_new_tokens: the cache grows evenly), or {REHEARSE}"
            )

    look()
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, min(_INTERVAL, max(deadline - time.monotonic(), 1e-3)), _INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Generation:
    """Progress of transformers' ``generate()``, read from the local variables of its loop."""

    def __init__(self) -> None:
        self.total = 0
        self._began: tuple[float, int] | None = None
        """Time and tokens when it was first seen."""

    def seconds_left(self, frame: FrameType | None, now: float) -> float:
        """Seconds until its last token at the speed so far; 0 if that is not known."""
        tokens = self._tokens(frame)
        if tokens is None or self._began is None or tokens < self._began[1]:
            self._began = None if tokens is None else (now, tokens)
            return 0.0
        done = tokens - self._began[1]
        return (self.total - tokens) * (now - self._began[0]) / done if done >= _ENOUGH_TOKENS else 0.0

    def _tokens(self, frame: FrameType | None) -> int | None:
        while frame is not None:
            if "stopping_criteria" in frame.f_code.co_varnames and "input_ids" in frame.f_code.co_varnames:
                criteria, tokens = (frame.f_locals.get(name) for name in ("stopping_criteria", "input_ids"))
                total = getattr(criteria, "max_length", None)
                if isinstance(total, int) and tokens is not None:
                    self.total = total
                    return int(tokens.shape[-1])
            frame = frame.f_back
        return None
